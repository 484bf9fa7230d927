/**
 * Compares a run with the results that are kept in the repository, and says what got worse.
 *
 * Figures swing from run to run. Kept results have the lowest and the highest of several runs, and a figure
 * got worse only if it is beyond the worst of them by more than `MARGIN` of the kept median.
 */
import type { Environment, Row } from './report.ts';

/** One figure over several runs. */
export interface Figure {
  key: string;
  unit: Row['unit'];
  better: 'less' | 'more';
  median: number;
  lowest: number;
  highest: number;
  runs: number;
  /** What it should be at most, or at least. */
  aim?: number;
}

export interface Kept {
  environment: Environment;
  figures: Figure[];
}

export interface Change {
  key: string;
  unit: Row['unit'];
  before: number;
  after: number;
  verdict: 'worse' | 'better';
}

const MARGIN = 0.1;
/** Of another machine only ratios can be compared. */
const SAME_MACHINE = ['cpu', 'cores', 'memoryGiB', 'cgroups', 'runsc'];
const MORE_IS_BETTER: readonly Row['unit'][] = ['MB/s', '/s'];

export function isSameMachine(a: Environment, b: Environment): boolean {
  return SAME_MACHINE.every((key) => a[key] === b[key]);
}

/** The rows of several runs as one figure for each key, in the order of the first run. */
export function figuresOf(runs: readonly (readonly Row[])[]): Figure[] {
  const values = new Map<string, { row: Row; values: number[] }>();
  for (const row of runs.flat()) {
    const known = values.get(row.key ?? row.what);
    if (known) known.values.push(row.value);
    else values.set(row.key ?? row.what, { row, values: [row.value] });
  }
  return [...values].map(([key, { row, values: all }]) => {
    const sorted = all.toSorted((a, b) => a - b);
    return {
      key,
      unit: row.unit,
      better: row.aim?.better ?? (MORE_IS_BETTER.includes(row.unit) ? 'more' : 'less'),
      median: sorted[Math.floor(sorted.length / 2)]!,
      lowest: sorted[0]!,
      highest: sorted.at(-1)!,
      runs: sorted.length,
      ...(row.aim && { aim: row.aim.value }),
    };
  });
}

/** What changed by more than noise. Figures that one of the two does not have are left out. */
export function compare(kept: Kept, environment: Environment, figures: readonly Figure[]): Change[] {
  const before = new Map(kept.figures.map((figure) => [figure.key, figure]));
  const onlyRatios = !isSameMachine(kept.environment, environment);
  return figures.flatMap(({ key, unit, better, median }) => {
    const old = before.get(key);
    if (!old || old.unit !== unit || (onlyRatios && unit !== 'x')) return [];
    const margin = MARGIN * Math.abs(old.median);
    const above = median > old.highest + margin;
    const below = median < old.lowest - margin;
    if (!above && !below) return [];
    const verdict = above === (better === 'less') ? ('worse' as const) : ('better' as const);
    return [{ key, unit, before: old.median, after: median, verdict }];
  });
}

/** Lines for people. */
export function comparisonText(kept: Kept, environment: Environment, changes: readonly Change[]): string[] {
  const scope = isSameMachine(kept.environment, environment)
    ? 'compared with the kept runs'
    : 'compared with the kept runs of another machine: ratios alone';
  const line = ({ key, unit, before, after, verdict }: Change) =>
    `  ${verdict.padEnd(6)} ${key.padEnd(70)} ${short(before)} → ${short(after)} ${unit}`;
  const ordered = changes.toSorted((a, b) => b.verdict.localeCompare(a.verdict));
  return [scope, ...(changes.length === 0 ? ['  nothing changed by more than noise'] : ordered.map(line))];
}

function short(value: number): string {
  return value.toFixed(value < 10 ? 2 : 0);
}
