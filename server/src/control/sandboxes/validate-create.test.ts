import { CayError, CreateSandboxSchema, type CreateSandboxInput } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../backends/backend.ts';
// oxlint-disable-next-line no-restricted-imports
import { checkSpec } from '../../backends/support/check-spec.ts';
// This tests the control plane with several platforms.
// oxlint-disable-next-line no-restricted-imports
import { platformsBackend } from '../../backends/composite/platforms.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type TestControl,
} from '../testing/test-control.ts';

/** A backend that enforces neither disk nor processes, cannot freeze, and has one template. */
function poor(): Backend {
  const memory = memoryBackend();
  return {
    ...memory,
    name: 'poor',
    ability: (name) => (name === 'freeze' || name === 'suspend' ? undefined : memory.ability(name)),
    async capabilities() {
      const all = await memory.capabilities();
      return {
        ...all,
        backend: 'poor',
        abilities: { ...all.abilities, diskLimit: false, pidsLimit: false, freeze: false, suspend: false },
        notes: {
          ...all.notes,
          diskLimit: 'no quotas',
          pidsLimit: 'no counting',
          freeze: 'nothing stands still',
        },
      };
    },
    async validate(spec) {
      checkSpec(spec, 'Poor', await this.capabilities());
      if (spec.template !== 'base') throw new CayError('not_found', `Template "${spec.template}" is unknown`);
    },
  };
}

let place: Installation;
let running: TestControl;
beforeEach(async () => {
  place = installation();
  const backend = await platformsBackend({
    platforms: [
      { name: 'rich', open: async () => memoryBackend() },
      { name: 'poor', open: async () => poor() },
      {
        name: 'shy',
        open: () => Promise.reject(new CayError('unavailable', 'no answer', { hint: 'wait' })),
      },
    ],
    rules: [{ label: 'cheap', platform: 'poor' }],
  });
  running = await place.open(backend);
});
afterEach(async () => {
  await running.control.close();
  place.remove();
});

const validate = (input: CreateSandboxInput = {}) =>
  running.control.validate(running.principal, CreateSandboxSchema.parse(input));

describe('validate()', () => {
  it('says which platform would be chosen, and makes nothing', async () => {
    expect(await validate()).toEqual({ ok: true, platform: 'rich', problems: [] });
    expect(await validate({ labels: { cheap: 'yes' } })).toEqual({
      ok: true,
      platform: 'poor',
      problems: [],
    });
    expect(await validate({ platform: 'poor' })).toEqual({ ok: true, platform: 'poor', problems: [] });
    expect((await running.control.list(running.principal, { limit: 10 })).sandboxes).toEqual([]);
  });

  it('lists every field that a create would refuse on the platform', async () => {
    const request = {
      platform: 'poor',
      template: 'nothing',
      runtime: 'warp',
      limits: { diskBytes: 64 * 1024 * 1024, pids: 100, cpus: 1 },
    } satisfies CreateSandboxInput;
    const { ok, platform, problems } = await validate(request);
    expect([ok, platform]).toEqual([false, 'poor']);
    expect(problems.map(({ field, code, refused }) => [field, code, refused])).toEqual([
      ['template', 'not_found', true],
      ['runtime', 'not_found', true],
      ['limits.diskBytes', 'unsupported', true],
      ['limits.pids', 'unsupported', true],
    ]);
    expect(problems[2]).toMatchObject({
      message: 'Poor cannot enforce "limits.diskBytes": no quotas',
      hint: 'set "limits.diskBytes" to null',
    });
    for (const part of [{ template: 'nothing' }, { runtime: 'warp' }, { limits: { pids: 100 } }]) {
      const [problem] = (await validate({ platform: 'poor', ...part })).problems;
      const create = running.control.create(running.principal, asked({ platform: 'poor', ...part }));
      await expect(create).rejects.toMatchObject({ code: problem!.code, message: problem!.message });
    }
  });

  it('lists fields that have no effect on the platform, without refusing the request', async () => {
    const { ok, problems } = await validate({
      platform: 'poor',
      timeoutMs: 60_000,
      onBoot: 'start',
      idle: { freezeAfterMs: 1000, suspendAfterMs: 1500, hibernateAfterMs: 2000, archiveAfterMs: 3000 },
    });
    expect(ok).toBe(true);
    expect(problems.map(({ field, refused }) => [field, refused])).toEqual([
      ['idle.freezeAfterMs', false],
      ['idle.suspendAfterMs', false],
      ['idle.hibernateAfterMs', false],
      ['onTimeout', false],
      ['onBoot', false],
    ]);
    expect(problems[0]!.message).toBe('Sandboxes cannot be frozen here: nothing stands still');
  });

  it('refuses a platform that is unknown or unreachable, and a platform where the snapshot is not', async () => {
    expect(await validate({ platform: 'moon' })).toMatchObject({
      ok: false,
      platform: null,
      problems: [{ code: 'not_found', field: 'platform' }],
    });
    expect(await validate({ platform: 'shy' })).toMatchObject({
      ok: false,
      problems: [{ code: 'unavailable', hint: 'wait' }],
    });
    const { sandbox } = await running.control.create(running.principal, asked());
    const { id: snapshot } = await running.control.snapshot(running.principal, sandbox.id, {});
    expect(await validate({ snapshot })).toEqual({ ok: true, platform: 'rich', problems: [] });
    expect(await validate({ snapshot, platform: 'poor' })).toMatchObject({
      ok: false,
      problems: [{ code: 'failed_precondition' }],
    });
    expect(await validate({ snapshot, memory: true })).toMatchObject({
      ok: false,
      problems: [{ code: 'failed_precondition' }],
    });
    expect(await validate({ snapshot: `snap_${'0'.repeat(20)}` })).toMatchObject({
      problems: [{ code: 'not_found', field: 'snapshot' }],
    });
  });

  it('checks names and quotas, and reserves nothing', async () => {
    const { control, principal, projects } = running;
    await control.create(principal, asked({ name: 'mine' }));
    expect(await validate({ name: 'mine' })).toMatchObject({
      ok: false,
      problems: [{ code: 'already_exists', field: 'name' }],
    });
    expect(await validate({ name: 'mine', getOrCreate: true })).toMatchObject({ ok: true });
    expect(await validate({ getOrCreate: true })).toMatchObject({
      ok: false,
      problems: [{ field: 'getOrCreate' }],
    });
    await projects.setQuota(principal.project, {
      sandboxes: 2,
      cpus: null,
      memoryBytes: null,
      diskBytes: null,
    });
    for (const _ of [1, 2, 3]) expect((await validate()).ok).toBe(true);
    await control.create(principal, asked());
    expect(await validate()).toMatchObject({
      ok: false,
      problems: [{ code: 'resource_exhausted', refused: true }],
    });
  });
});
