import { describe, expect, it } from 'vitest';
import type { Instance } from '../../host/instances/instance.ts';
import { Pool, type PoolKey } from './pool.ts';

/** The pool looks at an instance's name and at whether its guest is connected, and at nothing else. */
function standIn(name: string, connected = true): Instance {
  return { facts: { name }, link: { current: connected ? {} : undefined } } as unknown as Instance;
}

const key = (templateTree = 'one'): PoolKey => ({ template: 'base', templateTree, runtime: 'runc' });

function pool(size: number, options: { busy?: () => boolean; made?: string[]; gone?: string[] } = {}) {
  let count = 0;
  return new Pool({
    size,
    atOnce: 2,
    busy: options.busy ?? (() => false),
    async make() {
      const name = `made-${++count}`;
      options.made?.push(name);
      return { instance: standIn(name), key: key() };
    },
    async destroy(instance) {
      options.gone?.push(instance.facts.name);
    },
    onError(error) {
      throw error;
    },
  });
}

describe('Pool', () => {
  it('fills up to its size and no further', async () => {
    const made: string[] = [];
    const filled = pool(3, { made });
    await filled.full();
    filled.fill();
    expect(made).toEqual(['made-1', 'made-2', 'made-3']);
    await filled.close();
  });

  it('hands each instance out once', async () => {
    const filled = pool(3);
    await filled.full();
    const taken = Array.from({ length: 4 }, () => filled.take(key())?.facts.name);
    expect(new Set(taken.slice(0, 3)).size).toBe(3);
    expect(taken[3]).toBeUndefined();
    await filled.close();
  });

  it('drains what came from an older template', async () => {
    const gone: string[] = [];
    const filled = pool(2, { gone });
    await filled.full();
    expect(filled.take(key('two'))).toBeUndefined();
    expect(gone).toEqual(['made-1', 'made-2']);
    await filled.close();
  });

  it('keeps what it has when another runtime is asked for, whose tree of the same template is another', async () => {
    const gone: string[] = [];
    const filled = pool(1, { gone });
    await filled.full();
    expect(filled.take({ ...key('two'), runtime: 'process' })).toBeUndefined();
    expect(gone).toEqual([]);
    expect(filled.take(key())?.facts.name).toBe('made-1');
    await filled.close();
  });

  it('is closed only when what it drains is gone', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let gone = false;
    const draining = new Pool({
      size: 0,
      atOnce: 1,
      busy: () => false,
      make: () => Promise.reject(new Error('nothing is made')),
      destroy: () => promise.then(() => void (gone = true)),
      onError(error) {
        throw error;
      },
    });
    draining.add(standIn('dead', false), key());
    draining.take(key());
    setTimeout(resolve, 20);
    await draining.close();
    expect(gone).toBe(true);
  });

  it('does not hand out an instance whose guest has gone', async () => {
    const gone: string[] = [];
    const filled = pool(0, { gone });
    filled.add(standIn('dead', false), key());
    expect(filled.take(key())).toBeUndefined();
    expect(gone).toEqual(['dead']);
    await filled.close();
  });

  it('does not fill while a caller waits for a sandbox', async () => {
    const made: string[] = [];
    let busy = true;
    const waiting = pool(1, { made, busy: () => busy });
    waiting.fill();
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(made).toEqual([]);
    busy = false;
    await waiting.full();
    expect(made).toEqual(['made-1']);
    await waiting.close();
  });

  describe('that is empty', () => {
    /** Instances are made when the test says so. */
    function slowPool(size = 2) {
      const begun: { awaited: () => boolean; end(templateTree?: string): void; fail(): void }[] = [];
      const errors: unknown[] = [];
      const slow = new Pool({
        size,
        atOnce: 2,
        busy: () => false,
        make: (awaited) =>
          new Promise((resolve, reject) => {
            const name = `made-${begun.length + 1}`;
            begun.push({
              awaited,
              end: (tree) => resolve({ instance: standIn(name), key: key(tree) }),
              fail: () => reject(new Error('cannot be made')),
            });
          }),
        destroy: async () => {},
        onError: (error) => void errors.push(error),
      });
      return { slow, begun, errors };
    }
    const claimed: string[] = [];
    const claim = (instance: Instance) => void claimed.push(instance.facts.name);
    const turn = () => new Promise((resolve) => setTimeout(resolve, 5));

    /** Knows its key by one that was made, and was just taken from. */
    async function emptied(size?: number) {
      const made = slowPool(size);
      made.slow.fill();
      made.begun[0]!.end();
      await turn();
      expect(made.slow.take(key())?.facts.name).toBe('made-1');
      return made;
    }

    it('makes several at once and hands each to one caller as it comes', async () => {
      const { slow, begun } = await emptied();
      // Begun before, and one more.
      expect(begun).toHaveLength(3);
      const [first, second, third] = [1, 2, 3].map(() => slow.next(key(), claim)) as Promise<Instance>[];
      expect(await third).toBeUndefined();
      expect(begun[1]!.awaited()).toBe(true);
      begun[2]!.end();
      expect((await second)?.facts.name).toBe('made-3');
      begun[1]!.end();
      expect((await first)?.facts.name).toBe('made-2');
      expect(claimed).toEqual(['made-3', 'made-2']);
      await turn();
      // For those that were handed out others are made, and nobody has them yet.
      expect(begun).toHaveLength(5);
      for (const { end } of begun.slice(3)) end();
      await slow.close();
    });

    it('lets a caller make its own if what comes is of another template, or fails', async () => {
      const { slow, begun, errors } = await emptied();
      const [first, second] = [slow.next(key(), claim), slow.next(key(), claim)];
      expect(await slow.next(key('other'), claim)).toBeUndefined();
      begun[1]!.end('newer');
      begun[2]!.fail();
      expect(await first).toBeUndefined();
      expect(await second).toBeUndefined();
      expect(errors).toHaveLength(1);
      expect(slow.names()).toEqual(['made-2']);
      await slow.close();
    });

    it('lets callers make their own when it is closed', async () => {
      const { slow, begun } = await emptied();
      const waiting = slow.next(key(), claim);
      const closed = slow.close();
      for (const { end } of begun.slice(1)) end();
      expect(await waiting).toBeUndefined();
      expect(await closed).toEqual([]);
      expect(await slow.next(key(), claim)).toBeUndefined();
    });
  });
});
