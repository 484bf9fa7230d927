import type { SnapshotId } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { prunable, type Kept } from './retention.ts';

const turns = fc
  .uniqueArray(
    fc.record({
      turn: fc.integer({ min: 1, max: 60 }),
      named: fc.boolean(),
      needed: fc.boolean(),
      ageMs: fc.integer({ min: 0, max: 1000 }),
    }),
    {
      selector: ({ turn }) => turn,
      maxLength: 40,
    },
  )
  .map((all) =>
    all.map(({ turn, named, needed, ageMs }) => ({
      id: `snap_${turn}` as SnapshotId,
      order: turn,
      name: named ? `n${turn}` : null,
      createdAtMs: 5000 - ageMs,
      needed,
    })),
  );
const bound = fc.option(fc.integer({ min: 1, max: 20 }), { nil: null });
const age = fc.option(fc.integer({ min: 0, max: 1000 }), { nil: null });

describe('retention', () => {
  it('never prunes a turn with a name, the newest, or one that something needs', () => {
    fc.assert(
      fc.property(turns, bound, age, (all, keepLast, maxAgeMs) => {
        const needed = new Set(all.filter((turn) => turn.needed).map(({ id }) => id));
        const going = new Set(prunable(all, { keepLast, maxAgeMs }, 5000, (id) => needed.has(id)));
        const newest = Math.max(...all.map(({ order }) => order));
        for (const { id, name, order } of all)
          if (name !== null || order === newest || needed.has(id)) expect(going.has(id)).toBe(false);
      }),
    );
  });

  it('prunes all others that are too many or too old, and no more', () => {
    fc.assert(
      fc.property(turns, bound, age, (all, keepLast, maxAgeMs) => {
        const going = new Set(prunable(all, { keepLast, maxAgeMs }, 5000, () => false));
        const sorted = all.toSorted((one, other) => other.order - one.order);
        sorted.forEach(({ id, name, createdAtMs }: Kept, index) => {
          const due =
            (keepLast !== null && index >= keepLast) || (maxAgeMs !== null && 5000 - createdAtMs > maxAgeMs);
          expect(going.has(id)).toBe(due && index > 0 && name === null);
        });
      }),
    );
  });

  it('keeps everything without a bound', () => {
    fc.assert(
      fc.property(
        turns,
        (all) => prunable(all, { keepLast: null, maxAgeMs: null }, 1e9, () => false).length === 0,
      ),
    );
  });
});
