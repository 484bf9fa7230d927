import { describe, expect, it } from 'vitest';
import { compare, comparisonText, figuresOf, type Kept } from './compare.ts';
import { keptPage } from './kept-page.ts';
import type { Environment, Row } from './report.ts';

const here: Environment = { cpu: 'one', cores: 2, memoryGiB: 24, cgroups: 'v1', runsc: 'runsc 20240729' };
const row = (what: string, value: number, unit: Row['unit'] = 'ms'): Row => ({ what, value, unit });
const kept = (...runs: Row[][]): Kept => ({
  environment: here,
  figures: figuresOf(runs),
});

describe('figuresOf()', () => {
  it('has the median and both ends of each figure', () => {
    expect(figuresOf([[row('exec', 3)], [row('exec', 9)], [row('exec', 4)]])).toEqual([
      { key: 'exec', unit: 'ms', better: 'less', median: 4, lowest: 3, highest: 9, runs: 3 },
    ]);
  });

  it('knows that more throughput is better', () => {
    expect(figuresOf([[row('copy', 500, 'MB/s')]])[0]).toMatchObject({ better: 'more' });
  });
});

describe('compare()', () => {
  const before = kept([row('exec', 4)], [row('exec', 5)], [row('exec', 6)]);

  it('leaves out what is within the noise of the kept runs', () => {
    for (const value of [3.6, 4, 6, 6.4])
      expect(compare(before, here, figuresOf([[row('exec', value)]]))).toEqual([]);
  });

  it('reports what is beyond it, in both directions', () => {
    const verdictOf = (value: number) => compare(before, here, figuresOf([[row('exec', value)]]))[0]?.verdict;
    expect(verdictOf(7)).toBe('worse');
    expect(verdictOf(2)).toBe('better');
  });

  it('reports less throughput as worse', () => {
    const copies = kept([row('copy', 500, 'MB/s')]);
    expect(compare(copies, here, figuresOf([[row('copy', 300, 'MB/s')]]))).toMatchObject([
      { verdict: 'worse', before: 500, after: 300 },
    ]);
  });

  it('compares ratios alone with another machine, and says so', () => {
    const other = { ...here, cores: 64 };
    const both = kept([row('exec', 4), row('of docker', 0.05, 'x')]);
    const now = figuresOf([[row('exec', 40), row('of docker', 0.5, 'x')]]);
    const changes = compare(both, other, now);
    expect(changes).toMatchObject([{ key: 'of docker', verdict: 'worse' }]);
    expect(comparisonText(both, other, changes).join('\n')).toContain('another machine');
  });
});

describe('keptPage()', () => {
  it('has a table for each section, with what was met and what was missed', () => {
    const met: Row = { ...row('exec: exec true, runc', 2), aim: { value: 3, better: 'less' } };
    const missed: Row = { ...row('copies: 1 GB in', 400, 'MB/s'), aim: { value: 900, better: 'more' } };
    const page = keptPage(kept([met, missed]));
    expect(page).toContain('| exec true, runc | 2 ms | 2–2 | 1 | ≤ 3 | met |');
    expect(page).toContain('## copies\n');
    expect(page).toContain('| 1 GB in | 400 MB/s | 400–400 | 1 | ≥ 900 | missed |');
  });
});
