import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { rateLimit } from './rate-limit.ts';

describe('rateLimit()', () => {
  it('allows the burst at once and then the rate', () => {
    let nowMs = 0;
    const limit = rateLimit({ perSecond: 10, burst: 3 }, () => nowMs);
    expect([limit.take('a'), limit.take('a'), limit.take('a')]).toEqual([0, 0, 0]);
    expect(limit.take('a')).toBe(100);
    expect(limit.take('b')).toBe(0);
    nowMs = 100;
    expect(limit.take('a')).toBe(0);
    expect(limit.take('a')).toBeGreaterThan(0);
  });

  it('never allows more than burst and rate together, and waiting as long as it says is enough', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 500 }), { maxLength: 200 }), (steps) => {
        let nowMs = 0;
        let taken = 0;
        const limit = rateLimit({ perSecond: 20, burst: 5 }, () => nowMs);
        for (const step of steps) {
          nowMs += step;
          const waitMs = limit.take('key');
          if (waitMs === 0) taken++;
          else {
            nowMs += waitMs + 1e-6;
            expect(limit.take('key')).toBe(0);
            taken++;
          }
          expect(taken).toBeLessThanOrEqual(5 + (nowMs * 20) / 1000 + 1e-6);
        }
      }),
    );
  });
});
