import { ABILITIES, LimitsSchema, type Capabilities } from '@cay/sdk/protocol';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { allowsImage, requireImage } from './allow-image.ts';
import { allowsRuntime, preferredRuntime, requireMayHave, requireRuntime } from './allow-runtime.ts';
import { loweredLimits, requireLimits } from './bound-limits.ts';
import { DEFAULT_POLICY, openPolicy, policyFacts, usualLimits } from './policy.ts';

const coded = (code: string, details: object = {}) =>
  expect.objectContaining({ code, details: expect.objectContaining(details) }) as Error;
const able = (value = true) =>
  Object.fromEntries(ABILITIES.map((name) => [name, value])) as Capabilities['abilities'];
const withProcess = { runtimes: ['runc', 'process'], allowProcess: true };

describe('the runtimes that are allowed', () => {
  it('are all that isolate, unless the operator names them', () => {
    expect(['runsc', 'runc', 'nvidia', 'gvisor'].every((name) => allowsRuntime(DEFAULT_POLICY, name))).toBe(
      true,
    );
    expect(allowsRuntime(DEFAULT_POLICY, 'process')).toBe(false);
    const policy = openPolicy({ runtimes: ['runsc'] });
    expect(() => requireRuntime(policy, 'runc', ['runsc', 'runc'])).toThrow(
      coded('permission_denied', { runtime: 'runc', allowed: ['runsc'] }),
    );
  });

  it('have the one that isolates nothing only if it is said twice, and never tell of it', () => {
    for (const settings of [
      { runtimes: ['process'] },
      { allowProcess: true },
      { runtimes: ['runc'], allowProcess: true },
    ])
      expect(() => openPolicy(settings)).toThrow(coded('invalid_argument'));
    const policy = openPolicy(withProcess);
    expect(allowsRuntime(policy, 'process')).toBe(true);
    expect(policyFacts(policy).runtimes).toEqual(['runc']);
    expect(() => requireMayHave({ role: 'member' }, null, 'process')).toThrow(
      coded('permission_denied', { runtime: 'process' }),
    );
    requireMayHave({ role: 'admin' }, 'process');
    requireMayHave({ role: 'member' }, 'runc', undefined);
  });

  it('are chosen from where a sandbox names none', () => {
    expect(preferredRuntime(DEFAULT_POLICY, 'runc', ['runc'])).toBe('runc');
    expect(preferredRuntime(openPolicy({ runtimes: ['kata', 'runsc'] }), 'runc', ['runc', 'runsc'])).toBe(
      'runsc',
    );
    expect(() => preferredRuntime(openPolicy(withProcess), 'runsc', ['runsc', 'process'])).toThrow(
      coded('permission_denied'),
    );
  });
});

describe('the images that are allowed', () => {
  const policy = {
    images: ['python:*', 'registry.example.com:5000/team/**', 'debian:stable-slim', 'exact.name/a+b'],
  };

  it.each([
    'python:3.13',
    'python:latest',
    'registry.example.com:5000/team/a/b:1',
    'debian:stable-slim',
    'exact.name/a+b',
  ])('have "%s"', (image) => expect(allowsImage(policy, image)).toBe(true));

  it.each([
    'python',
    'pythonx:3',
    'evil/python:3',
    'python:3/../../evil:1',
    'evil.example.com/python:3',
    'registry.example.com:5000/teams/a:1',
    'xregistry.example.com:5000/team/a:1',
    'registryxexample.com:5000/team/a:1',
    'debian:stable-slim\nevil',
    'debian:stable-slim2',
    'exactxname/aab',
  ])('do not have "%s"', (image) =>
    expect(() => requireImage(policy, image)).toThrow(
      coded('permission_denied', { image, allowed: policy.images }),
    ),
  );

  it('are all, or none, if the operator says so', () => {
    expect(allowsImage({}, 'anything:1')).toBe(true);
    expect(allowsImage({ images: [] }, 'anything:1')).toBe(false);
    expect(allowsImage({ images: ['**'] }, 'any/thing:1')).toBe(true);
  });
});

describe('the limits that are allowed', () => {
  it('have a default bound on processes, memory and disk', () => {
    for (const limit of ['pids', 'memoryBytes', 'diskBytes'] as const)
      expect(() => requireLimits(DEFAULT_POLICY, { [limit]: null }, able())).toThrow(
        coded('invalid_argument', { limit, asked: null }),
      );
    expect(() => requireLimits(DEFAULT_POLICY, { pids: 4_000_000 }, able())).toThrow(
      coded('invalid_argument', { maximum: 8192 }),
    );
    requireLimits(DEFAULT_POLICY, LimitsSchema.parse({}), able());
    requireLimits(openPolicy({ maxima: { pids: null } }), { pids: null }, able());
  });

  it('are not held to a maximum that could not be enforced', () => {
    requireLimits(DEFAULT_POLICY, { pids: null, diskBytes: null }, able(false));
    expect(() =>
      requireLimits(openPolicy({ maxima: { timeoutMs: 1000 } }), { timeoutMs: null }, able(false)),
    ).toThrow(coded('invalid_argument'));
  });

  it('have defaults within the maximum, and refuse a default beyond it', () => {
    expect(usualLimits(openPolicy({ maxima: { memoryBytes: 1024 ** 3 } })).memoryBytes).toBe(1024 ** 3);
    expect(openPolicy({ maxima: { timeoutMs: 60_000 } }).defaults.timeoutMs).toBe(60_000);
    expect(usualLimits(openPolicy({ defaults: { pids: 100 } })).pids).toBe(100);
    expect(() => openPolicy({ defaults: { pids: 100 }, maxima: { pids: 99 } })).toThrow(
      coded('invalid_argument'),
    );
    expect(() => openPolicy({ defaults: { pids: null } })).toThrow(coded('invalid_argument'));
  });

  it('hold for whatever is lowered to them, and change nothing that was within', () => {
    const amount = (min: number, max: number) => fc.option(fc.integer({ min, max }), { nil: null });
    const limits = fc.record({
      cpus: amount(1, 64),
      memoryBytes: amount(2 ** 24, 2 ** 36),
      diskBytes: amount(2 ** 24, 2 ** 40),
      pids: amount(8, 100_000),
      openFiles: fc.integer({ min: 64, max: 1_048_576 }),
    });
    fc.assert(
      fc.property(limits, limits, (asked, maxima) => {
        const policy = openPolicy({ maxima });
        const lowered = loweredLimits(policy, asked, able());
        const { diskBytes, ...others } = lowered;
        requireLimits(policy, others, able());
        expect(diskBytes).toBe(asked.diskBytes);
        for (const limit of ['cpus', 'memoryBytes', 'pids', 'openFiles'] as const)
          expect([asked[limit], maxima[limit]]).toContain(lowered[limit]);
        expect(loweredLimits(policy, lowered, able())).toEqual(lowered);
        requireLimits(policy, usualLimits(policy), able());
      }),
    );
  });
});
