import type { SnapshotId } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/** A step of a build that need not be run again. */
export interface BuildStepRow {
  project: string;
  /** A hash over all that its result depends on. */
  key: string;
  snapshot: SnapshotId;
  /** What later steps go on with, as JSON. Sealed: environments and arguments may have credentials. */
  state: string;
  bytes: number;
  usedAtMs: number;
}

export interface BuildStepRecords {
  /** Replaces the one of the same key. */
  save(row: BuildStepRow): Promise<void>;
  get(project: string, key: string): Promise<BuildStepRow | undefined>;
  used(project: string, key: string, atMs: number): Promise<void>;
  /** The least recently used first, without their states. */
  list(project: string): Promise<Omit<BuildStepRow, 'state'>[]>;
  /** Whether a step is known that has this snapshot. */
  has(snapshot: string): Promise<boolean>;
  /** Resolves whether there was one. */
  delete(project: string, key: string): Promise<boolean>;
}

export function buildStepTable({ sql, box }: TableContext): BuildStepRecords {
  const context = (project: string, key: string) => `build_steps/${project}/${key}`;
  return {
    async save({ project, key, snapshot, state, bytes, usedAtMs }) {
      await sql.run(
        `INSERT INTO build_steps (project, key, snapshot, state, bytes, used_at) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (project, key) DO UPDATE SET snapshot = excluded.snapshot, state = excluded.state,
           bytes = excluded.bytes, used_at = excluded.used_at`,
        project,
        key,
        snapshot,
        box.seal(state, context(project, key)),
        bytes,
        usedAtMs,
      );
    },
    async get(project, key) {
      const row = await sql.get<BuildStepRow>(
        `SELECT project, key, snapshot, state, bytes, used_at AS "usedAtMs" FROM build_steps
         WHERE project = ? AND key = ?`,
        project,
        key,
      );
      return row && { ...row, state: box.open(row.state, context(project, key)).toString() };
    },
    async used(project, key, atMs) {
      await sql.run('UPDATE build_steps SET used_at = ? WHERE project = ? AND key = ?', atMs, project, key);
    },
    list: (project) =>
      sql.all<Omit<BuildStepRow, 'state'>>(
        `SELECT project, key, snapshot, bytes, used_at AS "usedAtMs" FROM build_steps WHERE project = ?
         ORDER BY used_at, key`,
        project,
      ),
    has: async (snapshot) =>
      (await sql.get('SELECT 1 AS found FROM build_steps WHERE snapshot = ? LIMIT 1', snapshot)) !==
      undefined,
    delete: async (project, key) =>
      (await sql.run('DELETE FROM build_steps WHERE project = ? AND key = ?', project, key)) > 0,
  };
}
