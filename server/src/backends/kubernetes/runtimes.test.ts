import { describe, expect, it } from 'vitest';
import { openPolicy } from '../../policy/policy.ts';
import { runtimeChoice } from './runtimes.ts';

const found = new Map(
  ['default', 'gvisor', 'kata'].map((name) => [name, { name, gvisor: name === 'gvisor' }]),
);
const refused = (code: string) => expect.objectContaining({ code }) as Error;

describe('the runtimes of a cluster', () => {
  it('are all of them, and the cluster’s own way by default', () => {
    const choice = runtimeChoice(found, {});
    expect(choice.names).toEqual(['default', 'gvisor', 'kata']);
    expect([choice.pick().name, choice.pick('kata').name]).toEqual(['default', 'kata']);
    expect(() => choice.pick('none')).toThrow(refused('not_found'));
  });

  it('have no pods without a RuntimeClass where the settings have one', () => {
    const choice = runtimeChoice(found, { runtimeClass: 'gvisor' });
    expect(choice.names).toEqual(['gvisor', 'kata']);
    expect(choice.pick().name).toBe('gvisor');
    expect(() => choice.pick('default')).toThrow(refused('permission_denied'));
    expect(() => choice.pick('none')).toThrow(refused('not_found'));
  });

  it('are those that the operator lists', () => {
    const listed = runtimeChoice(found, {
      runtimeClass: 'gvisor',
      policy: openPolicy({ runtimes: ['default', 'gvisor'] }),
    });
    expect(listed.pick('default').name).toBe('default');
    expect(() => listed.pick('kata')).toThrow(refused('permission_denied'));
    const strict = runtimeChoice(found, { policy: openPolicy({ runtimes: ['kata'] }) });
    expect([strict.names, strict.pick().name]).toEqual([['kata'], 'kata']);
    for (const name of ['default', 'gvisor', 'none', 'process'])
      expect(() => strict.pick(name)).toThrow(refused('permission_denied'));
    const absent = runtimeChoice(found, { policy: openPolicy({ runtimes: ['firecracker'] }) });
    expect(() => absent.pick()).toThrow(refused('permission_denied'));
  });
});
