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
});
