import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openClock } from './clock.ts';

describe('a clock', () => {
  it('lets nothing seem older than it is, and counts what has passed, however the time of day is set', () => {
    const step = fc.record({ passedMs: fc.nat(1e6), jumpMs: fc.integer({ min: -1e9, max: 1e9 }) });
    fc.assert(
      fc.property(fc.array(step), (steps) => {
        let [nowMs, monotonicMs] = [1.7e12, 5];
        const clock = openClock({ now: () => nowMs, monotonic: () => monotonicMs });
        const began = nowMs;
        let passed = 0;
        for (const { passedMs, jumpMs } of steps) {
          passed += passedMs;
          monotonicMs += passedMs;
          nowMs += passedMs + jumpMs;
          expect(clock.now()).toBe(nowMs);
          expect(clock.steady() - began).toBe(passed);
          expect(clock.ageing() - began).toBeLessThanOrEqual(passed);
        }
      }),
    );
  });
});
