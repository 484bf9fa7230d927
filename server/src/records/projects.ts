import { CayError, QuotaSchema, newId, type Project, type Quota, type SomeQuota } from '@cay/sdk/protocol';
import { NO_BOUNDS, effectiveQuota, requireWithin, type QuotaBounds } from '../policy/quota-bounds.ts';
import type { Database } from './database.ts';

interface StoredProject {
  id: string;
  name: string;
  quota: string;
  created_at: number;
}

export interface ProjectRecords {
  create(name: string, quota?: Quota): Project;
  get(id: string): Project | undefined;
  byName(name: string): Project | undefined;
  list(): Project[];
  /** Those that are given. Rejects `invalid_argument` above the operator's maximum. */
  setQuota(id: string, quota: SomeQuota): Project;
  /** Rejects `failed_precondition` while anything but keys belongs to the project. */
  requireEmpty(id: string): void;
  /** Removes a project that is empty, with its keys. One that is gone is removed already. */
  remove(id: string): void;
}

/** Tables with rows that a client can remove by itself, and what the rows are. */
const HELD: Record<string, string> = {
  sandboxes: 'sandboxes',
  snapshots: 'snapshots',
  templates: 'templates',
  webhooks: 'webhooks',
};

export interface ProjectRecordsOptions {
  now?(): number;
  /** The operator's defaults and maxima. Default: none. */
  bounds?: QuotaBounds;
}

export function projectRecords(
  database: Database,
  { now = Date.now, bounds = NO_BOUNDS }: ProjectRecordsOptions = {},
): ProjectRecords {
  const parse = (row: StoredProject | undefined): Project | undefined => {
    if (!row) return undefined;
    // Records of an earlier version lack some.
    const quota = QuotaSchema.parse(JSON.parse(row.quota));
    return {
      id: row.id,
      name: row.name,
      quota,
      effectiveQuota: effectiveQuota(quota, bounds),
      createdAtMs: row.created_at,
    };
  };
  const records: ProjectRecords = {
    create(name, quota = QuotaSchema.parse({})) {
      if (records.byName(name))
        throw new CayError('already_exists', `A project named "${name}" exists already`);
      requireWithin(quota, bounds);
      const id = newId('prj');
      database.run(
        'INSERT INTO projects (id, name, quota, created_at) VALUES (?, ?, ?, ?)',
        id,
        name,
        JSON.stringify(quota),
        now(),
      );
      return records.get(id)!;
    },
    get: (id) => parse(database.get<StoredProject>('SELECT * FROM projects WHERE id = ?', id)),
    byName: (name) => parse(database.get<StoredProject>('SELECT * FROM projects WHERE name = ?', name)),
    list: () =>
      database.all<StoredProject>('SELECT * FROM projects ORDER BY created_at').map((row) => parse(row)!),
    setQuota(id, quota) {
      requireWithin(quota, bounds);
      const before = records.get(id);
      if (!before) throw new CayError('not_found', `Project "${id}" does not exist`);
      const given = Object.entries(quota).filter(([, value]) => value !== undefined);
      const all = { ...before.quota, ...Object.fromEntries(given) };
      database.run('UPDATE projects SET quota = ? WHERE id = ?', JSON.stringify(all), id);
      return records.get(id)!;
    },
    requireEmpty(id) {
      for (const [table, what] of Object.entries(HELD)) {
        const { count } = database.get<{ count: number }>(
          `SELECT count(*) AS count FROM ${table} WHERE project = ?`,
          id,
        )!;
        if (count === 0) continue;
        throw new CayError('failed_precondition', `Cannot remove project "${id}": it has ${count} ${what}`, {
          details: { [what]: count },
          hint: `remove its ${what} first`,
        });
      }
    },
    remove(id) {
      database.transaction(() => {
        records.requireEmpty(id);
        for (const table of ['forks', 'builds', 'keys'])
          database.run(`DELETE FROM ${table} WHERE project = ?`, id);
        database.run('DELETE FROM projects WHERE id = ?', id);
      });
    },
  };
  return records;
}
