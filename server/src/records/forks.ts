import type { SandboxId, SnapshotId } from '@cay/sdk/protocol';
import type { Database } from './database.ts';

/** One call that makes several sandboxes: all of them, or none. */
export interface ForkRow {
  id: string;
  project: string;
  snapshot: SnapshotId;
  /** None before there is a snapshot to make them of. */
  children: SandboxId[];
  /** Whether the call can be repeated, so that it is worth finishing after its caller is gone. */
  keyed: boolean;
  /** Whether all children are there. */
  made: boolean;
  createdAtMs: number;
}

interface StoredFork {
  id: string;
  project: string;
  snapshot: string;
  children: string;
  keyed: number;
  made: number;
  created_at: number;
}

export interface ForkRecords {
  insert(row: ForkRow): void;
  get(id: string): ForkRow | undefined;
  /** Those that were under way. */
  unmade(): ForkRow[];
  /** Notes what it will make, and of what. */
  update(id: string, changes: Pick<ForkRow, 'snapshot' | 'children'>): void;
  made(id: string): void;
  delete(id: string): void;
}

/** As long as idempotency keys are remembered. */
const KEPT_MS = 7 * 24 * 3600 * 1000;

export function forkRecords(database: Database): ForkRecords {
  return {
    insert(row) {
      database.run('DELETE FROM forks WHERE made = 1 AND created_at < ?', row.createdAtMs - KEPT_MS);
      database.run(
        'INSERT INTO forks (id, project, snapshot, children, keyed, made, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
        row.id,
        row.project,
        row.snapshot,
        JSON.stringify(row.children),
        row.keyed ? 1 : 0,
        row.made ? 1 : 0,
        row.createdAtMs,
      );
    },
    get: (id) => parse(database.get<StoredFork>('SELECT * FROM forks WHERE id = ?', id)),
    unmade: () => database.all<StoredFork>('SELECT * FROM forks WHERE made = 0').map((row) => parse(row)!),
    update: (id, { snapshot, children }) =>
      void database.run(
        'UPDATE forks SET snapshot = ?, children = ? WHERE id = ?',
        snapshot,
        JSON.stringify(children),
        id,
      ),
    made: (id) => void database.run('UPDATE forks SET made = 1 WHERE id = ?', id),
    delete: (id) => void database.run('DELETE FROM forks WHERE id = ?', id),
  };
}

function parse(row: StoredFork | undefined): ForkRow | undefined {
  return (
    row && {
      id: row.id,
      project: row.project,
      snapshot: row.snapshot as SnapshotId,
      children: JSON.parse(row.children) as SandboxId[],
      keyed: row.keyed !== 0,
      made: row.made !== 0,
      createdAtMs: row.created_at,
    }
  );
}
