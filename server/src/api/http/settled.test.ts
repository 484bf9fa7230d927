import { describe, expect, it } from 'vitest';
import type { Settled } from './settled.ts';

/** What JSON makes of a value that `json(…)` of a route takes. The compiler checks the lines below. */
const written = <T>(value: T & Settled<T>) => JSON.stringify(value);

describe('Settled', () => {
  it('refuses promises, which JSON would write as {}', () => {
    // @ts-expect-error: a promise
    expect(written(Promise.resolve(1))).toBe('{}');
    // @ts-expect-error: a promise in an object
    expect(written({ keys: Promise.resolve([1]) })).toBe('{"keys":{}}');
    // @ts-expect-error: promises in a list
    expect(written([{ sandbox: Promise.resolve(1) }])).toBe('[{"sandbox":{}}]');
  });

  it('takes everything else', () => {
    const value: { list: readonly number[]; none: null; maybe?: string; any: unknown } = {
      list: [1],
      none: null,
      any: { deep: true },
    };
    expect(written(value)).toBe('{"list":[1],"none":null,"any":{"deep":true}}');
  });
});
