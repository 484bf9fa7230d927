import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { transferTurns } from './transfer-turns.ts';

/** Transfers that go on until they are ended. */
function world(options?: Parameters<typeof transferTurns>[0]) {
  const turns = transferTurns(options);
  const running: string[] = [];
  return {
    running,
    start(project: string) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const done = turns.run(project, async () => {
        running.push(project);
        await promise.finally(() => running.splice(running.indexOf(project), 1));
      });
      return { done, end: resolve, fail: reject };
    },
  };
}

describe('transfers', () => {
  it('of one project do not wait for those of others, however long they take', async () => {
    const { running, start } = world();
    for (let project = 0; project < 30; project++) for (let n = 0; n < 5; n++) start(`silent-${project}`);
    await nextTurn();
    expect(running.length).toBe(30 + 16);
    start('mine');
    await nextTurn();
    expect(running).toContain('mine');
  });

  it('are two of a project, and the next one has its turn when one ends', async () => {
    const { running, start } = world();
    const [first, second, third] = [start('a'), start('a'), start('a')];
    await nextTurn();
    expect(running).toEqual(['a', 'a']);
    second.fail(new Error('no'));
    await expect(second.done).rejects.toThrow('no');
    first.end();
    await first.done;
    await nextTurn();
    expect(running).toEqual(['a']);
    third.end();
    await third.done;
    expect(running).toEqual([]);
  });

  it('are bounded for all projects together', async () => {
    const { running, start } = world({ firsts: 3, seconds: 2 });
    const all = ['a', 'b', 'c', 'd'].flatMap((project) => [start(project), start(project)]);
    await nextTurn();
    expect(running.toSorted()).toEqual(['a', 'a', 'b', 'b', 'c']);
    for (const one of all) {
      one.end();
      await nextTurn();
      expect(running.length).toBeLessThanOrEqual(5);
    }
    await Promise.all(all.map(({ done }) => done));
  });
});
