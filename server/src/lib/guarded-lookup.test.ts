import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { addressKind } from './address-kind.ts';
import { guardedLookup } from './guarded-lookup.ts';

const lookup = (isAllowed: (address: string) => boolean) =>
  promisify(
    guardedLookup({
      isAllowed,
      refusal: (name, address) => new Error(`${name} is at ${address}`),
      system: true,
    }),
  ) as (name: string, options: object) => Promise<unknown>;

describe('guardedLookup()', () => {
  it('gives what is allowed of the addresses of a name, as Node asks for them', async () => {
    const any = lookup(() => true);
    expect(await any('localhost', { all: true })).toContainEqual({ address: '127.0.0.1', family: 4 });
    expect(await any('LOCALHOST.', { family: 4 })).toBe('127.0.0.1');
    const four = lookup((address) => address.includes('.'));
    expect(await four('localhost', { all: true, family: 0 })).toEqual([{ address: '127.0.0.1', family: 4 }]);
  });

  it('refuses a name that is nowhere else, and one that nobody knows', async () => {
    const abroad = lookup((address) => addressKind(address) === 'public');
    await expect(abroad('localhost', { all: true })).rejects.toThrow('localhost is at 127.0.0.1');
    await expect(abroad('no-such-host.invalid', {})).rejects.toThrow();
  });
});
