import type { StatsSample } from '@cay/sdk/client';
import { describe, expect, it } from 'vitest';
import { chartRow } from './chart.ts';

const sample = (atMs: number, pids: number) => ({ atMs, pids }) as StatsSample;

describe('a chart', () => {
  it('has the largest value of each column, gaps, the newest and the most', () => {
    const samples = [sample(0, 1), sample(10, 8), sample(20, 4), sample(399, 2)];
    const [name, chart, now, most] = chartRow(
      'pids',
      { fromMs: 0, toMs: 400, samples },
      ({ pids }) => pids,
      (value) => `${value}`,
    );
    expect({ name, now, most }).toEqual({ name: 'pids', now: '2', most: '8' });
    expect(chart).toBe(`▂█▅${' '.repeat(36)}▃`);
  });

  it('has nothing where nothing is known', () => {
    const nothing = chartRow('disk', { fromMs: 0, toMs: 1, samples: [sample(0, 1)] }, () => null, String);
    expect(nothing.slice(2)).toEqual(['-', '-']);
  });
});
