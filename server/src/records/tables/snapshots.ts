import { CayError, type NetworkPolicy, type SandboxSpec } from '@cay/sdk/protocol';
import { NO_LIMIT, type SqlValue } from '../sql/sql.ts';
import { storedValue } from './sandbox-row.ts';
import { sharedFileTable } from './shared-files.ts';
import {
  SNAPSHOT_COLUMNS,
  parseSnapshot,
  type SnapshotQuery,
  type SnapshotRow,
  type StoredSnapshot,
} from './snapshot-row.ts';
import { sealedNetworks } from '../sealing/sealed-network.ts';
import { requireTextRoom } from './text-room.ts';
import type { TableContext } from './table-context.ts';

export interface SnapshotRecords {
  /** Rejects `already_exists` if a snapshot of the sandbox has the name or the turn. */
  insert(row: SnapshotRow): Promise<void>;
  /** In any state. */
  get(id: string): Promise<SnapshotRow | undefined>;
  /** Of snapshots in state `kept`, as `byTurn`, `list`, `beforeRollbacks` and `children`. */
  byName(project: string, sandbox: string, name: string): Promise<SnapshotRow | undefined>;
  byTurn(project: string, sandbox: string, turn: number): Promise<SnapshotRow | undefined>;
  /** Newest first. */
  list(query: SnapshotQuery): Promise<SnapshotRow[]>;
  /** All snapshots in any state. */
  all(): Promise<SnapshotRow[]>;
  /** Snapshots that rollbacks of a sandbox took first, in the reverse of the order they were recorded in. */
  beforeRollbacks(sandbox: string): Promise<SnapshotRow[]>;
  /** Snapshots whose parent this is. */
  children(id: string): Promise<SnapshotRow[]>;
  /** Rejects `not_found` if the snapshot does not exist. */
  update(
    id: string,
    changes: Partial<
      Pick<
        SnapshotRow,
        'state' | 'memory' | 'runtime' | 'here' | 'object' | 'quiet' | 'spec' | 'fileBytes' | 'memoryBytes'
      >
    >,
  ): Promise<SnapshotRow>;
  /**
   * How many snapshots a project has and what they take on disk. Snapshots that are being taken or removed
   * count; those in state `passing` do not.
   */
  usage(project: string): Promise<{ count: number; bytes: number }>;
  /** Records that the snapshot is an object of this size in the archive store and no longer on a platform. */
  archived(id: string, objectBytes: number): Promise<void>;
  /**
   * Removes it from the tree of snapshots: its children, and sandboxes whose base it is, get its parent.
   * Those that may still have its files are counted with them, once for all of them.
   */
  delete(id: string): Promise<void>;
}

export function snapshotTable(context: TableContext): SnapshotRecords {
  const { sql, specs, box } = context;
  const { dialect } = sql;
  const networks = sealedNetworks(box);
  const parse = (row: StoredSnapshot) =>
    parseSnapshot(row, specs.parsed(`snapshots/${row.id}`, row.spec), {
      network: networks.parsed(`snapshots/${row.id}`, row.network),
      templateNetwork: networks.parsed(`snapshots/${row.id}/template`, row.template_network),
    });
  const column = (id: string, key: string, value: unknown) => {
    const row = `snapshots/${id}`;
    if (key === 'spec') return specs.stored(row, value as SandboxSpec);
    if (key === 'network') return networks.stored(row, value as NetworkPolicy | null);
    if (key === 'templateNetwork') return networks.stored(`${row}/template`, value as NetworkPolicy | null);
    return storedValue(value);
  };
  const one = async (condition: string, ...values: SqlValue[]) => {
    const row = await sql.get<StoredSnapshot>(`SELECT * FROM snapshots WHERE ${condition}`, ...values);
    return row && parse(row);
  };
  const many = async (condition: string, ...values: SqlValue[]) =>
    (await sql.all<StoredSnapshot>(`SELECT * FROM snapshots WHERE ${condition}`, ...values)).map(parse);

  const records: SnapshotRecords = {
    async insert(row) {
      const keys = Object.keys(SNAPSHOT_COLUMNS) as (keyof SnapshotRow)[];
      await requireTextRoom(sql, row, { ...row }, (key, value) => column(row.id, key, value));
      const inserted = await sql.run(
        `INSERT INTO snapshots (${Object.values(SNAPSHOT_COLUMNS).join(', ')})
         VALUES (${keys.map(() => '?').join(', ')}) ON CONFLICT DO NOTHING`,
        ...keys.map((key) => column(row.id, key, row[key])),
      );
      if (inserted > 0) return;
      const { project, sandbox, name, turn } = row;
      if (name !== null && (await one('project = ? AND sandbox = ? AND name = ?', project, sandbox, name)))
        throw new CayError(
          'already_exists',
          `A snapshot named "${name}" of sandbox "${sandbox}" exists already`,
          { hint: 'choose another name, or remove the other snapshot first' },
        );
      if (turn !== null && (await one('project = ? AND sandbox = ? AND turn = ?', project, sandbox, turn)))
        throw new CayError(
          'already_exists',
          `A snapshot of turn ${turn} of sandbox "${sandbox}" exists already`,
        );
      throw new CayError('internal', `Cannot record snapshot "${row.id}": its id is in use`);
    },
    get: (id) => one('id = ?', id),
    byName: (project, sandbox, name) =>
      one(`project = ? AND sandbox = ? AND name = ? AND state = 'kept'`, project, sandbox, name),
    byTurn: (project, sandbox, turn) =>
      one(`project = ? AND sandbox = ? AND turn = ? AND state = 'kept'`, project, sandbox, turn),
    list(query) {
      const conditions = [`state = 'kept'`];
      const values: SqlValue[] = [];
      const where = (condition: string, ...given: SqlValue[]) => {
        conditions.push(condition);
        values.push(...given);
      };
      if (query.project !== undefined) where('project = ?', query.project);
      if (query.sandbox !== undefined) where('sandbox = ?', query.sandbox);
      for (const [key, value] of Object.entries(query.labels ?? {}))
        where(dialect.hasMember('labels'), key, value);
      if (query.after) where('(created_at, id) < (?, ?)', query.after.createdAtMs, query.after.id);
      return many(
        `${conditions.join(' AND ')} ORDER BY created_at DESC, id DESC LIMIT ?`,
        ...values,
        query.limit ?? NO_LIMIT,
      );
    },
    all: () => many('1 = 1'),
    beforeRollbacks: (sandbox) =>
      many(
        `sandbox = ? AND cause = 'rollback' AND state = 'kept' ORDER BY ${dialect.insertionOrder} DESC`,
        sandbox,
      ),
    children: (id) => many(`parent = ? AND state = 'kept'`, id),
    async update(id, changes) {
      const entries = Object.entries(changes).filter(([, value]) => value !== undefined) as [
        keyof SnapshotRow,
        unknown,
      ][];
      const row = await sql.get<StoredSnapshot>(
        `UPDATE snapshots SET ${entries.map(([key]) => `${SNAPSHOT_COLUMNS[key]} = ?`).join(', ')}
         WHERE id = ? RETURNING *`,
        ...entries.map(([key, value]) => column(id, key, value)),
        id,
      );
      if (!row) throw new CayError('not_found', `Snapshot "${id}" does not exist`);
      return parse(row);
    },
    async usage(project) {
      const own = (await sql.get<{ count: number; bytes: number }>(
        `SELECT count(*) AS count,
                CAST(coalesce(sum(coalesce(file_bytes, 0) + coalesce(memory_bytes, 0)), 0) AS BIGINT) AS bytes
         FROM snapshots WHERE project = ? AND state <> 'passing'`,
        project,
      ))!;
      return { count: own.count, bytes: own.bytes + (await sharedFileTable({ sql }).usage(project)) };
    },
    archived: (id, objectBytes) =>
      sql.transaction(async (tx) => {
        const table = snapshotTable({ ...context, sql: tx });
        const row = await table.get(id);
        if (!row) throw new CayError('not_found', `Snapshot "${id}" does not exist`);
        await sharedFileTable({ sql: tx }).bequeath(row);
        await table.update(id, { here: false, fileBytes: objectBytes, memoryBytes: 0 });
      }),
    delete: (id) =>
      sql.transaction(async (tx) => {
        const row = await snapshotTable({ ...context, sql: tx }).get(id);
        if (!row) return;
        await sharedFileTable({ sql: tx }).bequeath(row);
        await tx.run('UPDATE snapshots SET parent = ? WHERE parent = ?', row.parent, id);
        await tx.run('UPDATE sandboxes SET base = ? WHERE base = ?', row.parent, id);
        await tx.run('DELETE FROM snapshots WHERE id = ?', id);
      }),
  };
  return records;
}
