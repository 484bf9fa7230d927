import type { StatsSample } from '@cay/sdk/client';

const BARS = '▁▂▃▄▅▆▇█';
const COLUMNS = 40;

interface Range {
  fromMs: number;
  toMs: number;
  samples: readonly StatsSample[];
}

/**
 * One row of a table: a chart, the newest value and the largest. A column of the chart is the largest value
 * of its time, and a gap where nothing was read.
 */
export function chartRow(
  name: string,
  { fromMs, toMs, samples }: Range,
  valueOf: (sample: StatsSample) => number | null,
  format: (value: number) => string,
): string[] {
  const columns = Array.from({ length: COLUMNS }, () => Number.NaN);
  const values: number[] = [];
  for (const sample of samples) {
    const value = valueOf(sample);
    if (value === null) continue;
    values.push(value);
    const at = Math.floor(((sample.atMs - fromMs) / Math.max(1, toMs - fromMs)) * COLUMNS);
    const column = Math.min(COLUMNS - 1, Math.max(0, at));
    columns[column] = Number.isNaN(columns[column]) ? value : Math.max(columns[column]!, value);
  }
  const most = Math.max(...values);
  if (values.length === 0) return [name, ' '.repeat(COLUMNS), '-', '-'];
  const bar = (value: number) =>
    Number.isNaN(value) ? ' ' : BARS[most > 0 ? Math.round((value / most) * (BARS.length - 1)) : 0]!;
  return [name, columns.map(bar).join(''), format(values.at(-1)!), format(most)];
}
