import type { Limits, SnapshotId } from '@cay/sdk/protocol';
import type { SqlValue } from '../sql/sql.ts';
import type { TableContext } from './table-context.ts';

export type BuildState = 'waiting' | 'building' | 'ready' | 'failed';

export interface BuildFailure {
  message: string;
  hint?: string;
  /** 0 is the base template, 1 the first step, and one more than there are steps what follows the last. */
  step: number;
  steps: number;
  /** The command that failed, and how it ended. */
  command?: string;
  exitCode?: number;
  /** The user that the command should run as, if the template has no such user. */
  unknownUser?: string;
}

/** One making of a template. */
export interface BuildRow {
  /** A UUID. */
  id: string;
  project: string;
  template: string;
  /** The names that the template gets when it is ready. */
  names: string[];
  limits: Partial<Limits>;
  /** Of templates that the server builds by itself: tells whether one is up to date. */
  digest: string | null;
  state: BuildState;
  start: string | null;
  ready: string | null;
  snapshot: SnapshotId | null;
  failure: BuildFailure | null;
  createdAtMs: number;
  endedAtMs: number | null;
}

export interface BuildLogEntry {
  atMs: number;
  level: 'debug' | 'info' | 'warn' | 'error';
  message: string;
  /** The message says which step begins. */
  step?: true;
}

export type BuildEnd = { snapshot: SnapshotId } | { failure: BuildFailure };

interface StoredBuild {
  id: string;
  project: string;
  template: string;
  names: string;
  limits: string;
  digest: string | null;
  state: string;
  start: string | null;
  ready: string | null;
  snapshot: string | null;
  failure: string | null;
  created_at: number;
  ended_at: number | null;
}

export interface BuildRecords {
  insert(build: BuildRow): Promise<void>;
  get(id: string): Promise<BuildRow | undefined>;
  started(id: string, commands: { start: string | null; ready: string | null }): Promise<void>;
  ended(id: string, end: BuildEnd, log: readonly BuildLogEntry[], atMs: number): Promise<void>;
  log(id: string): Promise<BuildLogEntry[]>;
  /** Builds that wait or are under way, oldest first, of one project or of all. */
  unfinished(project?: string): Promise<BuildRow[]>;
  /** The newest first. */
  list(project: string, limit: number): Promise<BuildRow[]>;
  /** The newest build that made a snapshot. */
  of(snapshot: string): Promise<BuildRow | undefined>;
  /** The snapshots of a project's builds that no template is made from any more. */
  superseded(project: string): Promise<SnapshotId[]>;
  /** Records that a snapshot is gone. */
  dropped(snapshot: SnapshotId): Promise<void>;
  /**
   * Deletes the oldest builds that have ended, builds that were requested long ago and never started, and the
   * logs of all but the newest.
   */
  prune(project: string, options: { keep: number; keepLogs: number; waitingBeforeMs: number }): Promise<void>;
}

/** All columns but the log, which is long and seldom asked for. */
const SELECT = `SELECT id, project, template, names, limits, digest, state, start, ready, snapshot, failure,
  created_at, ended_at FROM builds`;

export function buildTable({ sql }: TableContext): BuildRecords {
  const many = async (rest: string, ...values: SqlValue[]) =>
    (await sql.all<StoredBuild>(`${SELECT} ${rest}`, ...values)).map(parse);
  return {
    async insert(build) {
      await sql.run(
        `INSERT INTO builds (id, project, template, names, limits, digest, state, log, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, '[]', ?)`,
        build.id,
        build.project,
        build.template,
        JSON.stringify(build.names),
        JSON.stringify(build.limits),
        build.digest,
        build.state,
        build.createdAtMs,
      );
    },
    get: async (id) => (await many('WHERE id = ?', id))[0],
    async started(id, { start, ready }) {
      await sql.run(
        `UPDATE builds SET state = 'building', start = ?, ready = ? WHERE id = ?`,
        start,
        ready,
        id,
      );
    },
    async ended(id, end, log, atMs) {
      const failed = 'failure' in end;
      await sql.run(
        'UPDATE builds SET state = ?, snapshot = ?, failure = ?, log = ?, ended_at = ? WHERE id = ?',
        failed ? 'failed' : 'ready',
        failed ? null : end.snapshot,
        failed ? JSON.stringify(end.failure) : null,
        JSON.stringify(log),
        atMs,
        id,
      );
    },
    async log(id) {
      const row = await sql.get<{ log: string }>('SELECT log FROM builds WHERE id = ?', id);
      return JSON.parse(row?.log ?? '[]') as BuildLogEntry[];
    },
    unfinished: (project) =>
      project === undefined
        ? many(`WHERE state IN ('waiting', 'building') ORDER BY created_at, id`)
        : many(`WHERE project = ? AND state IN ('waiting', 'building') ORDER BY created_at, id`, project),
    list: (project, limit) => many('WHERE project = ? ORDER BY created_at DESC, id LIMIT ?', project, limit),
    of: async (snapshot) => (await many('WHERE snapshot = ? ORDER BY created_at DESC LIMIT 1', snapshot))[0],
    superseded: async (project) =>
      (
        await sql.all<{ snapshot: SnapshotId }>(
          `SELECT DISTINCT snapshot FROM builds WHERE project = ? AND snapshot IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM templates WHERE templates.snapshot = builds.snapshot)`,
          project,
        )
      ).map(({ snapshot }) => snapshot),
    async dropped(snapshot) {
      await sql.run('UPDATE builds SET snapshot = NULL WHERE snapshot = ?', snapshot);
    },
    prune: (project, { keep, keepLogs, waitingBeforeMs }) =>
      sql.transaction(async (tx) => {
        await tx.run(
          `DELETE FROM builds WHERE project = ? AND state = 'waiting' AND created_at < ?`,
          project,
          waitingBeforeMs,
        );
        await tx.run(
          `DELETE FROM builds WHERE project = ? AND snapshot IS NULL AND state IN ('ready', 'failed')
           AND id NOT IN (SELECT id FROM builds WHERE project = ? ORDER BY created_at DESC LIMIT ?)`,
          project,
          project,
          keep,
        );
        await tx.run(
          `UPDATE builds SET log = '[]' WHERE project = ? AND log <> '[]'
           AND id NOT IN (SELECT id FROM builds WHERE project = ? ORDER BY created_at DESC LIMIT ?)`,
          project,
          project,
          keepLogs,
        );
      }),
  };
}

function parse(row: StoredBuild): BuildRow {
  return {
    id: row.id,
    project: row.project,
    template: row.template,
    names: JSON.parse(row.names) as string[],
    limits: JSON.parse(row.limits) as Partial<Limits>,
    digest: row.digest,
    state: row.state as BuildState,
    start: row.start,
    ready: row.ready,
    snapshot: row.snapshot as SnapshotId | null,
    failure: row.failure === null ? null : (JSON.parse(row.failure) as BuildFailure),
    createdAtMs: row.created_at,
    endedAtMs: row.ended_at,
  };
}
