import {
  CayError,
  QuotaSchema,
  newId,
  type NetworkPolicy,
  type Project,
  type Quota,
  type SomeQuota,
} from '@cay/sdk/protocol';
import { sealedNetworks } from '../sealing/sealed-network.ts';
import type { TableContext } from './table-context.ts';

/** The operator's bounds are not recorded: the control plane computes `effectiveQuota`. */
export type ProjectRow = Omit<Project, 'effectiveQuota'>;

interface StoredProject {
  id: string;
  name: string;
  quota: string;
  created_at: number;
  network: string | null;
}

export interface ProjectRecords {
  /** Rejects `already_exists` if a project has the name. */
  create(name: string, quota?: Quota): Promise<ProjectRow>;
  get(id: string): Promise<ProjectRow | undefined>;
  byName(name: string): Promise<ProjectRow | undefined>;
  /** Oldest first. */
  list(): Promise<ProjectRow[]>;
  /** Changes the given parts of the quota. Rejects `not_found` if the project does not exist. */
  setQuota(id: string, quota: SomeQuota): Promise<ProjectRow>;
  /** Null is no policy. Rejects `not_found` if the project does not exist. */
  setNetwork(id: string, network: NetworkPolicy | null): Promise<ProjectRow>;
  /**
   * Removes a project with its keys. Rejects `failed_precondition` while anything else belongs to it. A
   * missing project is removed already.
   */
  remove(id: string): Promise<void>;
}

/** Tables with rows that a client can remove by itself, and what the rows are. */
const HELD: Record<string, string> = {
  sandboxes: 'sandboxes',
  snapshots: 'snapshots',
  volumes: 'volumes',
  buckets: 'buckets',
  templates: 'templates',
  webhooks: 'webhooks',
  stored_secrets: 'secrets',
};

export function projectTable({ sql, now, box }: TableContext): ProjectRecords {
  const networks = sealedNetworks(box);
  const parse = (row: StoredProject) => parseProject(row, networks.parsed(`projects/${row.id}`, row.network));
  const one = async (condition: string, value: string) => {
    const row = await sql.get<StoredProject>(`SELECT * FROM projects WHERE ${condition}`, value);
    return row && parse(row);
  };
  return {
    async create(name, quota = QuotaSchema.parse({})) {
      const row: ProjectRow = { id: newId('prj'), name, quota, network: null, createdAtMs: now() };
      const inserted = await sql.run(
        'INSERT INTO projects (id, name, quota, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
        row.id,
        name,
        JSON.stringify(quota),
        row.createdAtMs,
      );
      if (inserted === 0) throw new CayError('already_exists', `A project named "${name}" exists already`);
      return row;
    },
    get: (id) => one('id = ?', id),
    byName: (name) => one('name = ?', name),
    list: async () =>
      (await sql.all<StoredProject>('SELECT * FROM projects ORDER BY created_at, id')).map(parse),
    setQuota: (id, quota) =>
      sql.transaction(async (tx) => {
        const stored = await tx.get<StoredProject>(
          `SELECT * FROM projects WHERE id = ?${sql.dialect.lockRow}`,
          id,
        );
        if (!stored) throw new CayError('not_found', `Project "${id}" does not exist`);
        const given = Object.entries(quota).filter(([, value]) => value !== undefined);
        const before = parse(stored);
        const all = { ...before.quota, ...Object.fromEntries(given) };
        await tx.run('UPDATE projects SET quota = ? WHERE id = ?', JSON.stringify(all), id);
        return { ...before, quota: all };
      }),
    async setNetwork(id, network) {
      const row = await sql.get<StoredProject>(
        'UPDATE projects SET network = ? WHERE id = ? RETURNING *',
        networks.stored(`projects/${id}`, network),
        id,
      );
      if (!row) throw new CayError('not_found', `Project "${id}" does not exist`);
      return parse(row);
    },
    remove: (id) =>
      sql.transaction(async (tx) => {
        for (const [table, what] of Object.entries(HELD)) {
          const { count } = (await tx.get<{ count: number }>(
            `SELECT count(*) AS count FROM ${table} WHERE project = ?`,
            id,
          ))!;
          if (count === 0) continue;
          throw new CayError(
            'failed_precondition',
            `Cannot remove project "${id}": it still has ${what} (${count})`,
            { details: { [what]: count }, hint: `remove its ${what} first` },
          );
        }
        for (const table of ['forks', 'builds', 'keys'])
          await tx.run(`DELETE FROM ${table} WHERE project = ?`, id);
        await tx.run('DELETE FROM projects WHERE id = ?', id);
      }),
  };
}

function parseProject(row: StoredProject, network: NetworkPolicy | null): ProjectRow {
  // Records of an earlier version lack some parts of the quota.
  const quota = QuotaSchema.parse(JSON.parse(row.quota));
  return { id: row.id, name: row.name, quota, network, createdAtMs: row.created_at };
}
