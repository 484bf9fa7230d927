import { describe, expect, it } from 'vitest';
import { openTurns } from './turns.ts';

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe('turns of callers', () => {
  it('begin at once what is alone, and do not ask whose it is', () => {
    const begun: number[] = [];
    const neverAsked = () => {
      throw new Error('asked');
    };
    openTurns().take(neverAsked, () => begun.push(1));
    expect(begun).toEqual([1]);
  });

  it('let a caller in between those of another that sends many', async () => {
    const turns = openTurns();
    const begun: string[] = [];
    const take = (caller: string) =>
      turns.take(
        () => caller,
        () => begun.push(caller),
      );
    for (let request = 0; request < 40; request++) take('many');
    take('one');
    expect(begun.length).toBeLessThan(10);
    await turn();
    await turn();
    expect(begun).toContain('one');
    expect(begun.length).toBeLessThan(20);
    while (begun.length < 41) await turn();
    // All are through, and the next begins at once again.
    await turn();
    await turn();
    take('last');
    expect(begun.at(-1)).toBe('last');
  });
});
