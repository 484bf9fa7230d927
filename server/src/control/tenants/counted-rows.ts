/**
 * The number of rows that a project has in a table. Counting a hundred thousand takes milliseconds, and every
 * call that adds a row needs the number. So rows are counted at most once a second, and those that were added
 * since are added to that. Removed rows, and those that another server added, are noticed a second later.
 */
import type { Tables } from '../../records/tables/tables.ts';

export interface CountedRows {
  of(project: string, on: Tables): Promise<number>;
  /** One more row was inserted. */
  added(project: string): void;
}

const COUNTED_MS = 1000;

export function countedRows(
  count: (project: string, on: Tables) => Promise<number>,
  now: () => number = () => performance.now(),
): CountedRows {
  const known = new Map<string, { rows: number; atMs: number }>();
  /** Rows that were inserted so far. One that is inserted while others are counted may be counted or not. */
  let inserted = 0;
  return {
    async of(project, on) {
      const before = known.get(project);
      if (before && now() - before.atMs < COUNTED_MS) return before.rows;
      const insertedBefore = inserted;
      const atMs = now();
      const rows = await count(project, on);
      if (inserted === insertedBefore) known.set(project, { rows, atMs });
      return rows;
    },
    added(project) {
      inserted++;
      const counted = known.get(project);
      if (counted) counted.rows++;
    },
  };
}
