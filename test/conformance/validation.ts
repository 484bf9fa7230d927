import type { Limits, SandboxSpec } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { rejects, type Suite } from './suite.ts';

const LIMITED_BY = {
  cpus: 'cpuLimit',
  memoryBytes: 'memoryLimit',
  diskBytes: 'diskLimit',
  pids: 'pidsLimit',
} as const;

export function validationCases(suite: Suite): void {
  /** Both doors refuse it, and nothing is made. */
  async function refused(spec: SandboxSpec, ...codes: Parameters<typeof rejects>[1][]): Promise<void> {
    await rejects(suite.backend.validate(spec), ...codes);
    const id = suite.id();
    await rejects(suite.backend.ensure(id, spec), ...codes);
    expect((await suite.backend.observe(id)).phase).toBe('absent');
  }

  /** A spec that the schema would not let through, as a careless caller may still pass one. */
  const withLimits = (limits: Partial<Limits>): SandboxSpec => {
    const spec = suite.spec();
    return { ...spec, limits: { ...spec.limits, ...limits } };
  };

  suite.case('validate() takes the spec that the suite uses', [], async () => {
    await expect(suite.backend.validate(suite.spec())).resolves.toBeUndefined();
  });

  suite.case(
    'capabilities() names this backend, a runtime and a template, and a reason for each thing missing',
    [],
    async () => {
      const { backend, runtimes, templates, abilities, notes } = suite.capabilities;
      expect(backend).toBe(suite.backend.name);
      expect(runtimes.length).toBeGreaterThan(0);
      expect(templates.length).toBeGreaterThan(0);
      const unexplained = Object.entries(abilities).filter(
        ([ability, has]) => !has && !notes[ability as keyof typeof notes],
      );
      expect(unexplained).toEqual([]);
    },
  );

  suite.case('what capabilities() promises, ability() has', [], async () => {
    const { abilities } = suite.capabilities;
    for (const name of ['resize', 'freeze', 'suspend', 'snapshots', 'memorySnapshots'] as const)
      if (abilities[name]) expect(suite.backend.ability(name), name).toBeDefined();
    if (suite.capabilities.platforms) return;
    for (const name of ['resize', 'freeze', 'suspend', 'snapshots'] as const)
      expect(suite.backend.ability(name) !== undefined, name).toBe(abilities[name]);
  });

  suite.case('an unknown template is not_found, and named in the message', [], async () => {
    const error = await rejects(
      suite.backend.validate(suite.spec({ template: 'no-such-template' })),
      'not_found',
    );
    expect(error.message).toContain('"no-such-template"');
    await refused(suite.spec({ template: 'no-such-template' }), 'not_found');
  });

  suite.case(
    'an unknown runtime is not_found, or not among those that are allowed, and named in the message',
    [],
    async () => {
      const codes = ['not_found', 'permission_denied'] as const;
      const error = await rejects(suite.backend.validate(suite.spec({ runtime: 'warp-drive' })), ...codes);
      expect(error.message).toContain('"warp-drive"');
      await refused(suite.spec({ runtime: 'warp-drive' }), ...codes);
    },
  );

  suite.case('a template that is a path is refused', [], async () => {
    for (const template of ['../../etc', '/etc', 'base/../../root', 'a\u0000b']) {
      await refused({ ...suite.spec(), template }, 'not_found', 'invalid_argument');
    }
  });

  suite.case('limits below the least are invalid_argument', [], async () => {
    for (const limits of [
      { cpus: 0 },
      { cpus: -1 },
      { memoryBytes: 1 },
      { diskBytes: 0 },
      { pids: 0 },
      { openFiles: 0 },
    ]) {
      await refused(withLimits(limits), 'invalid_argument');
    }
  });

  suite.case('limits beyond all reason are invalid_argument', [], async () => {
    for (const limits of [
      { cpus: 1e9 },
      { memoryBytes: Number.MAX_SAFE_INTEGER },
      { pids: 1e12 },
      { openFiles: 1e9 },
      { cpus: Number.NaN },
    ]) {
      await refused(withLimits(limits), 'invalid_argument');
    }
  });

  suite.case('a limit that the backend cannot enforce is unsupported', [], async ({ skip }) => {
    const missing = Object.entries(LIMITED_BY).filter(
      ([, ability]) => !suite.capabilities.abilities[ability],
    );
    if (missing.length === 0) skip('this backend enforces every limit');
    for (const [limit] of missing)
      await refused(
        withLimits({ [limit]: limit === 'cpus' ? 1 : 64 * 1024 * 1024 }),
        'unsupported',
        'invalid_argument',
      );
  });

  suite.case('a read-only root is unsupported where it is not enforced', [], async ({ skip }) => {
    if (suite.capabilities.abilities.readOnlyRoot) skip('this backend enforces it');
    await refused(suite.spec({ readOnlyRoot: true }), 'unsupported');
  });

  suite.case('a spec with an env name or a user that cannot be is invalid_argument', [], async () => {
    await refused({ ...suite.spec(), env: { 'A=B': 'x' } }, 'invalid_argument');
    await refused({ ...suite.spec(), env: { A: 'x\u0000y' } }, 'invalid_argument');
    await refused({ ...suite.spec(), user: '../root' }, 'invalid_argument');
    await refused({ ...suite.spec(), workdir: 'relative' }, 'invalid_argument');
  });
}
