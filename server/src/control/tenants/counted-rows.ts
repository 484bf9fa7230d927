/**
 * The number of rows that a project has in a table. Counting a hundred thousand takes milliseconds, and every
 * call that adds a row needs the number. So rows are counted at most once a second, and those that were added
 * since are added to that. Removed rows are noticed a second later.
 */
export interface CountedRows {
  of(project: string): number;
  /** One more row is about to be inserted. */
  added(project: string): void;
}

const COUNTED_MS = 1000;

export function countedRows(
  count: (project: string) => number,
  now: () => number = () => performance.now(),
): CountedRows {
  const known = new Map<string, { rows: number; atMs: number }>();
  return {
    of(project) {
      const atMs = now();
      const before = known.get(project);
      if (before && atMs - before.atMs < COUNTED_MS) return before.rows;
      const rows = count(project);
      known.set(project, { rows, atMs });
      return rows;
    },
    added(project) {
      const counted = known.get(project);
      if (counted) counted.rows++;
    },
  };
}
