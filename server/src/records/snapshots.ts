import { CayError, type SandboxSpec } from '@cay/sdk/protocol';
import { sealedSpecs } from './sealing/sealed-spec.ts';
import { sharedFiles } from './shared-files.ts';
import type { Database } from './database.ts';
import { storedValue } from './tables/sandbox-row.ts';
import {
  SNAPSHOT_COLUMNS,
  parseSnapshot,
  type SnapshotQuery,
  type SnapshotRow,
  type StoredSnapshot,
} from './tables/snapshot-row.ts';

export { showSnapshot } from './tables/snapshot-row.ts';
export type { SnapshotRow, SnapshotState } from './tables/snapshot-row.ts';

export interface SnapshotRecords {
  /** Rejects `already_exists` for a name that the sandbox's snapshots have. */
  insert(row: SnapshotRow): void;
  /** In whatever state it is. */
  get(id: string): SnapshotRow | undefined;
  byName(project: string, sandbox: string, name: string): SnapshotRow | undefined;
  byTurn(project: string, sandbox: string, turn: number): SnapshotRow | undefined;
  /** Those that are kept, newest first. */
  list(query: SnapshotQuery): SnapshotRow[];
  /** All there are, in whatever state. */
  all(): SnapshotRow[];
  /**
   * What a sandbox was before its rollbacks, the last first: in the order in which they were recorded,
   * whatever the clock said.
   */
  beforeRollbacks(sandbox: string): SnapshotRow[];
  /** Those that are kept and whose parent this is. */
  children(id: string): SnapshotRow[];
  update(
    id: string,
    changes: Partial<
      Pick<
        SnapshotRow,
        'state' | 'memory' | 'runtime' | 'here' | 'object' | 'quiet' | 'spec' | 'fileBytes' | 'memoryBytes'
      >
    >,
  ): SnapshotRow;
  /**
   * How many a project has and what they take, those that are being taken or removed included. Nobody asked
   * for `passing` ones.
   */
  usage(project: string): { count: number; bytes: number };
  /**
   * It is in the archive store, whole and with so many bytes, and no longer here. Those that have its files
   * are counted with them.
   */
  archived(id: string, objectBytes: number): void;
  /**
   * Takes it out of the tree: what descends from it, or stands on it, becomes its parent's. Those that may
   * still have its files are counted with them from now on, once for all of them.
   */
  delete(id: string): void;
}

export function snapshotRecords(database: Database): SnapshotRecords {
  const specs = sealedSpecs(database.box);
  const shared = sharedFiles(database);
  const parse = (row: StoredSnapshot | undefined) =>
    row && parseSnapshot(row, specs.parsed(`snapshots/${row.id}`, row.spec));
  const column = (id: string, key: string, value: unknown) =>
    key === 'spec' ? specs.stored(`snapshots/${id}`, value as SandboxSpec) : storedValue(value);
  const one = (condition: string, ...values: (string | number)[]) =>
    parse(database.get<StoredSnapshot>(`SELECT * FROM snapshots WHERE ${condition}`, ...values));
  const many = (condition: string, ...values: (string | number)[]) =>
    database
      .all<StoredSnapshot>(`SELECT * FROM snapshots WHERE ${condition}`, ...values)
      .map((row) => parse(row)!);
  const records: SnapshotRecords = {
    insert(row) {
      const keys = Object.keys(SNAPSHOT_COLUMNS) as (keyof SnapshotRow)[];
      try {
        database.run(
          `INSERT INTO snapshots (${Object.values(SNAPSHOT_COLUMNS).join(', ')}) VALUES (${keys.map(() => '?').join(', ')})`,
          ...keys.map((key) => column(row.id, key, row[key])),
        );
      } catch (error) {
        if (
          row.name !== null &&
          one('project = ? AND sandbox = ? AND name = ?', row.project, row.sandbox, row.name)
        ) {
          throw new CayError(
            'already_exists',
            `A snapshot named "${row.name}" of sandbox "${row.sandbox}" exists already`,
            {
              hint: 'choose another name, or remove the other snapshot first',
            },
          );
        }
        throw error;
      }
    },
    get: (id) => one('id = ?', id),
    byName: (project, sandbox, name) =>
      one(`project = ? AND sandbox = ? AND name = ? AND state = 'kept'`, project, sandbox, name),
    byTurn: (project, sandbox, turn) =>
      one(`project = ? AND sandbox = ? AND turn = ? AND state = 'kept'`, project, sandbox, turn),
    list(query) {
      const conditions = [`state = 'kept'`];
      const values: (string | number)[] = [];
      const where = (condition: string, ...given: (string | number)[]) => {
        conditions.push(condition);
        values.push(...given);
      };
      if (query.project !== undefined) where('project = ?', query.project);
      if (query.sandbox !== undefined) where('sandbox = ?', query.sandbox);
      for (const [key, value] of Object.entries(query.labels ?? {})) {
        where(
          'EXISTS (SELECT 1 FROM json_each(labels) AS label WHERE label.key = ? AND label.value = ?)',
          key,
          value,
        );
      }
      if (query.after) where('(created_at, id) < (?, ?)', query.after.createdAtMs, query.after.id);
      return many(
        `${conditions.join(' AND ')} ORDER BY created_at DESC, id DESC LIMIT ?`,
        ...values,
        query.limit ?? -1,
      );
    },
    all: () => many('1'),
    beforeRollbacks: (sandbox) =>
      many(`sandbox = ? AND cause = 'rollback' AND state = 'kept' ORDER BY rowid DESC`, sandbox),
    children: (id) => many(`parent = ? AND state = 'kept'`, id),
    update(id, changes) {
      const entries = Object.entries(changes).filter(([, value]) => value !== undefined) as [
        keyof SnapshotRow,
        unknown,
      ][];
      const changed = database.run(
        `UPDATE snapshots SET ${entries.map(([key]) => `${SNAPSHOT_COLUMNS[key]} = ?`).join(', ')} WHERE id = ?`,
        ...entries.map(([key, value]) => column(id, key, value)),
        id,
      );
      if (changed === 0) throw new CayError('not_found', `Snapshot "${id}" does not exist`);
      return records.get(id)!;
    },
    usage(project) {
      const own = database.get<{ count: number; bytes: number }>(
        `SELECT count(*) AS count, ifnull(sum(ifnull(file_bytes, 0) + ifnull(memory_bytes, 0)), 0) AS bytes
         FROM snapshots WHERE project = ? AND state <> 'passing'`,
        project,
      )!;
      return { ...own, bytes: own.bytes + shared.usage(project) };
    },
    archived: (id, objectBytes) =>
      database.transaction(() => {
        shared.bequeath(records.get(id)!);
        records.update(id, { here: false, fileBytes: objectBytes, memoryBytes: 0 });
      }),
    delete: (id) =>
      database.transaction(() => {
        const row = records.get(id);
        if (!row) return;
        shared.bequeath(row);
        database.run('UPDATE snapshots SET parent = ? WHERE parent = ?', row.parent, id);
        database.run('UPDATE sandboxes SET base = ? WHERE base = ?', row.parent, id);
        database.run('DELETE FROM snapshots WHERE id = ?', id);
      }),
  };
  return records;
}
