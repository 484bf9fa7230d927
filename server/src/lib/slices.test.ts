import { describe, expect, it } from 'vitest';
import { nextSlice } from './slices.ts';

describe('slices of the event loop', () => {
  it('are one in each turn, however many owners wait', async () => {
    let turns = 0;
    let over = false;
    const count = () => {
      turns++;
      if (!over) setImmediate(count);
    };
    setImmediate(count);
    await Promise.all(Array.from({ length: 20 }, () => nextSlice('one')));
    over = true;
    expect(turns).toBeGreaterThanOrEqual(19);
  });

  it('go round between owners', async () => {
    const order: string[] = [];
    const work = async (owner: string, pieces: number) => {
      for (let piece = 0; piece < pieces; piece++) {
        await nextSlice(owner);
        order.push(owner);
      }
    };
    await Promise.all([work('a', 5), work('a', 5), work('a', 5), work('b', 3)]);
    // The other owner has done its three before the first has done five of its fifteen.
    expect(order.lastIndexOf('b')).toBeLessThan(8);
    expect(order).toHaveLength(18);
  });
});
