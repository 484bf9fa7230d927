import { newId } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatContainerName, parseContainerName, type ContainerName } from './container-name.ts';

describe('the name of a container', () => {
  it('tells what was put into it, with or without the slash that the engine adds', () => {
    const names = fc.record({
      id: fc.constant(undefined).map(() => newId('sbx')),
      incarnation: fc.integer({ min: 1, max: 2 ** 40 }),
      mark: fc.constantFrom(undefined, 'starting' as const, 'stopping' as const),
    });
    fc.assert(
      fc.property(names, fc.constantFrom('', '/'), ({ mark, ...rest }, slash) => {
        const name: ContainerName = mark ? { ...rest, mark } : rest;
        expect(parseContainerName(slash + formatContainerName(name))).toEqual(name);
      }),
    );
  });

  it('is not found in a name of another format', () => {
    const id = newId('sbx');
    for (const name of [
      '',
      '/web',
      `cay-${id}`,
      `cay-${id}.0`,
      `cay-${id}.1.gone`,
      `cay-${id}.1.starting.starting`,
      'cay-sbx_short.1',
      `x-cay-${id}.1`,
    ]) {
      expect(parseContainerName(name), name).toBeUndefined();
    }
  });
});
