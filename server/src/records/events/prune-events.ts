/**
 * Removes events that are too many or too old. Events are counted for each project, so that a project that
 * makes many loses its own oldest ones only. The chain continues over removed events: see `event-gaps.ts`.
 */
import type { Sql } from '../sql/sql.ts';
import { removeEvents } from './event-gaps.ts';
import type { EventRetention } from './events.ts';

export interface EventPruner {
  /** One more event of this project is in the log. */
  added(project: string | null): void;
  /** In a transaction: removes some of the events beyond the bounds. Resolves whether there may be more. */
  prune(tx: Sql, headId: number): Promise<boolean>;
}

const KEPT = 1_000_000;
/** How many events one transaction removes. */
const BATCH = 500;

interface Row {
  id: number;
  project: string | null;
}

export interface PruneOptions {
  key: Uint8Array | undefined;
  keep: EventRetention;
  ageing(): number;
  /** Whether other servers append too, so that events have to be counted again each time. */
  shared: boolean;
}

export function eventPruner({ key, keep, ageing, shared }: PruneOptions): EventPruner {
  let counts: Map<string | null, number> | undefined;

  async function count(sql: Sql): Promise<Map<string | null, number>> {
    const rows = await sql.all<{ project: string | null; count: number }>(
      'SELECT project, count(*) AS count FROM events GROUP BY project',
    );
    return new Map(rows.map((row) => [row.project, row.count]));
  }

  function change(project: string | null, by: number): void {
    if (!counts) return;
    const left = (counts.get(project) ?? 0) + by;
    if (left > 0) counts.set(project, left);
    else counts.delete(project);
  }

  /** The oldest events beyond the bounds, at most one batch, in their order. */
  async function prunable(sql: Sql, headId: number): Promise<Row[]> {
    const found = new Map<number, Row>();
    const add = (rows: Row[]) => rows.forEach((row) => found.set(row.id, row));
    if (keep.ageMs !== undefined) {
      // The first event that is young enough: a clock that was set back makes no later event old.
      const young = await sql.get<{ id: number }>(
        'SELECT id FROM events WHERE at >= ? ORDER BY id LIMIT 1',
        Math.floor(ageing() - keep.ageMs),
      );
      add(
        await sql.all<Row>(
          'SELECT id, project FROM events WHERE id < ? ORDER BY id LIMIT ?',
          young?.id ?? headId + 1,
          BATCH,
        ),
      );
    }
    for (const [project, events] of counts ?? []) {
      const excess = Math.min(events - (keep.events ?? KEPT), BATCH - found.size);
      if (excess <= 0) continue;
      const of = project === null ? 'project IS NULL' : 'project = ?';
      add(
        await sql.all<Row>(
          `SELECT id, project FROM events WHERE ${of} ORDER BY id LIMIT ?`,
          ...(project === null ? [] : [project]),
          excess,
        ),
      );
    }
    return [...found.values()].sort((one, other) => one.id - other.id);
  }

  return {
    added: (project) => change(project, 1),
    async prune(tx, headId) {
      if (shared || !counts) counts = await count(tx);
      const rows = await prunable(tx, headId);
      const gone: Row[] = [];
      for (let at = 0; at < rows.length;) {
        let end = at;
        while (rows[end + 1]?.id === rows[end]!.id + 1) end++;
        // A stretch where the chain is broken stays, so that verification finds it.
        if (await removeEvents(tx, key, rows[at]!.id, rows[end]!.id)) gone.push(...rows.slice(at, end + 1));
        at = end + 1;
      }
      for (const { project } of gone) change(project, -1);
      return gone.length > 0 && rows.length >= BATCH;
    },
  };
}
