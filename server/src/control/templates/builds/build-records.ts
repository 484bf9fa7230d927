import type { Limits, SnapshotId } from '@cay/sdk/protocol';
import type { Database } from '../../../records/database.ts';
import type { Build, BuildFailure, BuildLogEntry, BuildState } from './build.ts';

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

export type BuildEnd = { snapshot: SnapshotId } | { failure: BuildFailure };

export interface BuildRecords {
  insert(build: Build): void;
  get(id: string): Build | undefined;
  started(id: string, commands: { start: string | null; ready: string | null }): void;
  ended(id: string, end: BuildEnd, log: readonly BuildLogEntry[], atMs: number): void;
  log(id: string): BuildLogEntry[];
  /** Oldest first. */
  unfinished(project?: string): Build[];
  /** The newest build that made a snapshot. */
  of(snapshot: string): Build | undefined;
  /** Snapshots of a project's builds that no template is made of any more. */
  superseded(project: string): SnapshotId[];
  dropped(snapshot: SnapshotId): void;
  /** Deletes the oldest that have ended, those that were never started, and the logs of older ones. */
  prune(project: string, options: { keep: number; keepLogs: number; waitingBeforeMs: number }): void;
}

/** All columns but the log, which is long and rarely read. */
const SELECT =
  'SELECT id, project, template, names, limits, digest, state, start, ready, snapshot, failure, created_at, ended_at FROM builds';

export function buildRecords(database: Database): BuildRecords {
  const many = (sql: string, ...values: (string | number)[]) =>
    database.all<StoredBuild>(sql, ...values).map(parse);
  return {
    insert: (build) =>
      void database.run(
        `INSERT INTO builds (id, project, template, names, limits, digest, state, log, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, '[]', ?)`,
        build.id,
        build.project,
        build.template,
        JSON.stringify(build.names),
        JSON.stringify(build.limits),
        build.digest,
        build.state,
        build.createdAtMs,
      ),
    get: (id) => many(`${SELECT} WHERE id = ?`, id)[0],
    started: (id, { start, ready }) =>
      void database.run(
        `UPDATE builds SET state = 'building', start = ?, ready = ? WHERE id = ?`,
        start,
        ready,
        id,
      ),
    ended(id, end, log, atMs) {
      const failed = 'failure' in end;
      database.run(
        'UPDATE builds SET state = ?, snapshot = ?, failure = ?, log = ?, ended_at = ? WHERE id = ?',
        failed ? 'failed' : 'ready',
        failed ? null : end.snapshot,
        failed ? JSON.stringify(end.failure) : null,
        JSON.stringify(log),
        atMs,
        id,
      );
    },
    log: (id) =>
      JSON.parse(
        database.get<{ log: string }>('SELECT log FROM builds WHERE id = ?', id)?.log ?? '[]',
      ) as BuildLogEntry[],
    unfinished: (project) =>
      project === undefined
        ? many(`${SELECT} WHERE state IN ('waiting', 'building') ORDER BY created_at`)
        : many(
            `${SELECT} WHERE project = ? AND state IN ('waiting', 'building') ORDER BY created_at`,
            project,
          ),
    of: (snapshot) => many(`${SELECT} WHERE snapshot = ? ORDER BY created_at DESC LIMIT 1`, snapshot)[0],
    superseded: (project) =>
      database
        .all<{ snapshot: SnapshotId }>(
          `SELECT DISTINCT snapshot FROM builds WHERE project = ? AND snapshot IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM templates WHERE templates.snapshot = builds.snapshot)`,
          project,
        )
        .map(({ snapshot }) => snapshot),
    dropped: (snapshot) =>
      void database.run('UPDATE builds SET snapshot = NULL WHERE snapshot = ?', snapshot),
    prune: (project, { keep, keepLogs, waitingBeforeMs }) =>
      database.transaction(() => {
        database.run(
          `DELETE FROM builds WHERE project = ? AND state = 'waiting' AND created_at < ?`,
          project,
          waitingBeforeMs,
        );
        database.run(
          `DELETE FROM builds WHERE project = ? AND snapshot IS NULL AND state IN ('ready', 'failed') AND id NOT IN (
             SELECT id FROM builds WHERE project = ? ORDER BY created_at DESC LIMIT ?)`,
          project,
          project,
          keep,
        );
        database.run(
          `UPDATE builds SET log = '[]' WHERE project = ? AND id NOT IN (
             SELECT id FROM builds WHERE project = ? ORDER BY created_at DESC LIMIT ?) AND log <> '[]'`,
          project,
          project,
          keepLogs,
        );
      }),
  };
}

function parse(row: StoredBuild): Build {
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
