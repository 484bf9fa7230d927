/**
 * Prunes events that are too many or too old. The number is counted for each project, so that a project with
 * many events loses only its own. The chain continues over pruned events: see `gaps.ts`.
 */
import type { DatabaseSync } from 'node:sqlite';
import { atOnce } from './at-once.ts';
import { openGaps } from './gaps.ts';
import type { EventRetention } from '../../records/events/events.ts';

export interface Pruner {
  /** Counts one more event of this project. */
  added(project: string | null): void;
  /**
   * Prunes some events beyond the retention. Returns whether more may be left. `headId` is the id of the
   * newest.
   */
  prune(headId: number): boolean;
}

const KEPT = 1_000_000;
/** The event loop is blocked for the time of one batch. */
const AT_ONCE = 500;

interface Row {
  id: number;
  project: string | null;
}

export function openPruner(
  sqlite: DatabaseSync,
  { key, keep, ageing }: { key: Uint8Array | undefined; keep: EventRetention; ageing(): number },
): Pruner {
  const gaps = openGaps(sqlite, key);
  const firstYoung = sqlite.prepare('SELECT id FROM events WHERE at >= ? ORDER BY id LIMIT 1');
  const selectOld = sqlite.prepare('SELECT id, project FROM events WHERE id < ? ORDER BY id LIMIT ?');
  const selectFirst = sqlite.prepare('SELECT id, project FROM events WHERE project IS ? ORDER BY id LIMIT ?');
  const counts = new Map<string | null, number>();
  for (const { project, count } of sqlite
    .prepare('SELECT project, count(*) AS count FROM events GROUP BY project')
    .all()) {
    counts.set(project as string | null, Number(count));
  }
  const change = (project: string | null, by: number) => {
    const count = (counts.get(project) ?? 0) + by;
    if (count > 0) counts.set(project, count);
    else counts.delete(project);
  };

  /** The oldest events to prune, at most so many, in order. */
  function prunable(headId: number): Row[] {
    const found = new Map<number, Row>();
    const add = (rows: unknown) => {
      for (const row of rows as Row[]) found.set(row.id, row);
    };
    if (keep.ageMs !== undefined) {
      // Stops at the first that is young enough: a clock that was set back does not make later events old.
      const young = firstYoung.get(ageing() - keep.ageMs) as { id: number } | undefined;
      add(selectOld.all(young?.id ?? headId + 1, AT_ONCE));
    }
    for (const [project, count] of counts) {
      const excess = Math.min(count - (keep.events ?? KEPT), AT_ONCE - found.size);
      if (excess > 0) add(selectFirst.all(project, excess));
    }
    return [...found.values()].sort((one, other) => one.id - other.id);
  }

  /** Returns the pruned events. Where the chain is broken nothing is pruned, as evidence. */
  function remove(rows: Row[]): Row[] {
    const gone: Row[] = [];
    for (let at = 0; at < rows.length;) {
      let end = at;
      while (rows[end + 1]?.id === rows[end]!.id + 1) end++;
      if (gaps.remove(rows[at]!.id, rows[end]!.id)) gone.push(...rows.slice(at, end + 1));
      at = end + 1;
    }
    return gone;
  }

  return {
    added: (project) => change(project, 1),
    prune(headId) {
      const rows = prunable(headId);
      if (rows.length === 0) return false;
      const gone = atOnce(sqlite, () => remove(rows));
      for (const { project } of gone) change(project, -1);
      return gone.length > 0 && rows.length >= AT_ONCE;
    },
  };
}
