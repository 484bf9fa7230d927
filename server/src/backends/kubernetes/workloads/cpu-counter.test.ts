import { describe, expect, it } from 'vitest';
import { cpuCounter } from './cpu-counter.ts';

describe('cpuCounter', () => {
  it('counts what is read, and never back', () => {
    const count = cpuCounter(null);
    expect([count(100, 0), count(5_000, 1_000), count(4_000, 2_000), count(5_500, 3_000)]).toEqual([
      100, 5_000, 5_000, 5_500,
    ]);
  });

  it('grows by no more than the limit allows', () => {
    const count = cpuCounter(0.5);
    expect(count(2_000, 10_000)).toBe(2_000);
    expect(count(3_000, 11_000)).toBe(2_550);
    // What was too much then does not come later.
    expect(count(3_100, 12_000)).toBe(2_650);
  });
});
