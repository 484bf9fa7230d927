import type { Sql } from '../sql/sql.ts';
import type { EventRecords } from './events.ts';
import { ofWhom } from './of-whom.ts';

/** Finds where in the log a reader begins, by time or by number of events. */
export function eventPositions(
  sql: Sql,
  lastId: () => Promise<number>,
): Pick<EventRecords, 'before' | 'beforeLast'> {
  return {
    // Ids grow with time, unless the clock was set back, so a binary search needs no index on the time.
    async before(atMs) {
      let low = 0;
      let high = (await lastId()) + 1;
      while (low + 1 < high) {
        const middle = Math.floor((low + high) / 2);
        const row = await sql.get<{ id: number; at: number }>(
          'SELECT id, at FROM events WHERE id >= ? ORDER BY id LIMIT 1',
          middle,
        );
        if (row && row.at < atMs) low = row.id;
        else high = middle;
      }
      return low;
    },
    async beforeLast(count, { project, sandbox }) {
      const [condition, ...values] = ofWhom({ project, sandbox });
      const row = await sql.get<{ id: number }>(
        `SELECT id FROM events WHERE ${condition} ORDER BY id DESC LIMIT 1 OFFSET ?`,
        ...values,
        count,
      );
      return row?.id ?? 0;
    },
  };
}
