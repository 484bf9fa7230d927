/**
 * How many rows a project has in a table. Counting a hundred thousand takes milliseconds, and is asked for with
 * every call that adds one, so that rows are counted at most once a second, and those that were added since are
 * added to that. What was removed meanwhile is seen a second later.
 */
export interface CountedRows {
  of(project: string): number;
  /** One more is about to be there. */
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
