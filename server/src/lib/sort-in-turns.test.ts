import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sortInTurns } from './sort-in-turns.ts';

describe('sorting in turns', () => {
  it('is stable and gives the result of sort', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 20_000 }),
        fc.integer({ min: 1, max: 1000 }),
        async (length, values) => {
          const items = Array.from({ length }, (_, index) => ({ index, value: (index * 7919) % values }));
          const byValue = (a: { value: number }, b: { value: number }) => a.value - b.value;
          expect(await sortInTurns(items, byValue)).toEqual(items.toSorted(byValue));
        },
      ),
      { numRuns: 10 },
    );
  });
});
