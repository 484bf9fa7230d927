import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Gauge, worst } from './gauge.ts';

const thresholds = { warn: 0.8, critical: 0.95, slack: 0.05 };

describe('a gauge', () => {
  it('enters a level at its threshold and leaves it some way below', () => {
    const gauge = new Gauge(thresholds);
    expect([0.79, 0.8, 0.76, 0.74].map((share) => gauge.read(share))).toEqual(['ok', 'warn', 'warn', 'ok']);
    expect([0.96, 0.91, 0.89, 0.74].map((share) => gauge.read(share))).toEqual([
      'critical',
      'critical',
      'warn',
      'ok',
    ]);
  });

  it('is never below its thresholds, and above them by the slack at most', () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 1, noNaN: true })), (shares) => {
        const gauge = new Gauge(thresholds);
        for (const share of shares) {
          const level = gauge.read(share);
          if (share >= thresholds.critical) expect(level).toBe('critical');
          else if (share >= thresholds.warn) expect(level).not.toBe('ok');
          if (share < thresholds.warn - thresholds.slack) expect(level).toBe('ok');
          else if (share < thresholds.critical - thresholds.slack) expect(level).not.toBe('critical');
        }
      }),
    );
  });

  it('does not flap within the slack', () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0.76, max: 0.79, noNaN: true }), { minLength: 2 }), (shares) => {
        const gauge = new Gauge(thresholds);
        expect(new Set(shares.map((share) => gauge.read(share))).size).toBe(1);
      }),
    );
  });

  it('is as bad as the worst of many', () => {
    expect(worst([])).toBe('ok');
    expect(worst(['ok', 'critical', 'warn'])).toBe('critical');
  });
});
