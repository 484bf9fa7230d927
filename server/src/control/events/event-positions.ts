import type { DatabaseSync } from 'node:sqlite';
import type { EventLog } from './event-log.ts';

/** Finds where in the log a reader begins, by time or by number of events. */
export function eventPositions(
  sqlite: DatabaseSync,
  lastId: () => number,
): Pick<EventLog, 'before' | 'beforeLast'> {
  const firstFrom = sqlite.prepare('SELECT id, at FROM events WHERE id >= ? ORDER BY id LIMIT 1');
  const last = (condition: string) =>
    sqlite.prepare(`SELECT id FROM events WHERE ${condition} ORDER BY id DESC LIMIT 1 OFFSET ?`);
  const lastOf = {
    all: last('1'),
    project: last('project = ?'),
    sandbox: last('sandbox = ? AND (?2 IS NULL OR project = ?2)'),
  };

  return {
    // Ids grow with time, unless the clock was set back, so a binary search needs no index on the time.
    before(atMs) {
      let low = 0;
      let high = lastId() + 1;
      while (low + 1 < high) {
        const middle = Math.floor((low + high) / 2);
        const row = firstFrom.get(middle) as { id: number; at: number } | undefined;
        if (row && row.at < atMs) low = row.id;
        else high = middle;
      }
      return low;
    },
    beforeLast(count, { project, sandbox }) {
      const row =
        sandbox !== undefined
          ? lastOf.sandbox.get(sandbox, project ?? null, count)
          : project !== undefined
            ? lastOf.project.get(project, count)
            : lastOf.all.get(count);
      return (row as { id: number } | undefined)?.id ?? 0;
    },
  };
}
