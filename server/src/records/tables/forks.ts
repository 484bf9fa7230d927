import type { SandboxId, SnapshotId } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

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
  /** Also forgets finished forks that no idempotency key can ask for any more. */
  insert(row: ForkRow): Promise<void>;
  get(id: string): Promise<ForkRow | undefined>;
  /** Forks that are not finished. */
  unmade(): Promise<ForkRow[]>;
  /** Records which children it makes, and from which snapshot. Resolves false if the fork does not exist. */
  update(id: string, changes: Pick<ForkRow, 'snapshot' | 'children'>): Promise<boolean>;
  made(id: string): Promise<void>;
  delete(id: string): Promise<void>;
}

/** As long as idempotency keys are remembered. */
const KEPT_MS = 7 * 24 * 3600 * 1000;

export function forkTable({ sql }: TableContext): ForkRecords {
  return {
    insert: (row) =>
      sql.transaction(async (tx) => {
        await tx.run('DELETE FROM forks WHERE made = 1 AND created_at < ?', row.createdAtMs - KEPT_MS);
        await tx.run(
          'INSERT INTO forks (id, project, snapshot, children, keyed, made, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
          row.id,
          row.project,
          row.snapshot,
          JSON.stringify(row.children),
          row.keyed ? 1 : 0,
          row.made ? 1 : 0,
          row.createdAtMs,
        );
      }),
    async get(id) {
      const row = await sql.get<StoredFork>('SELECT * FROM forks WHERE id = ?', id);
      return row && parse(row);
    },
    unmade: async () =>
      (await sql.all<StoredFork>('SELECT * FROM forks WHERE made = 0 ORDER BY created_at, id')).map(parse),
    update: async (id, { snapshot, children }) =>
      (await sql.run(
        'UPDATE forks SET snapshot = ?, children = ? WHERE id = ?',
        snapshot,
        JSON.stringify(children),
        id,
      )) > 0,
    async made(id) {
      await sql.run('UPDATE forks SET made = 1 WHERE id = ?', id);
    },
    async delete(id) {
      await sql.run('DELETE FROM forks WHERE id = ?', id);
    },
  };
}

function parse(row: StoredFork): ForkRow {
  return {
    id: row.id,
    project: row.project,
    snapshot: row.snapshot as SnapshotId,
    children: JSON.parse(row.children) as SandboxId[],
    keyed: row.keyed !== 0,
    made: row.made !== 0,
    createdAtMs: row.created_at,
  };
}
