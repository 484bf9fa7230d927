import type { Limits, SandboxSpec } from '@cay/sdk/protocol';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { requireLimits } from '../../policy/bound-limits.ts';
import { openPolicy, type Policy } from '../../policy/policy.ts';
import type { Principal } from '../tenants/principal.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
} from '../testing/test-control.ts';

const MiB = 1024 ** 2;
const maxima = {
  cpus: 2,
  memoryBytes: 512 * MiB,
  diskBytes: 1024 * MiB,
  pids: 128,
  openFiles: 1024,
  timeoutMs: 60_000,
};

let place: Installation;
beforeEach(() => void (place = installation()));
afterEach(() => place.remove());

/**
 * The backend, which reports each spec that it is asked to make. Other names of its one runtime are accepted.
 */
function watched(
  backend: MemoryBackend,
  see: (limits: Partial<Limits>) => void,
  runtimes: readonly string[] = [],
): MemoryBackend {
  const own = ({ runtime, ...spec }: SandboxSpec): SandboxSpec =>
    runtime === undefined || runtimes.includes(runtime) ? spec : { ...spec, runtime };
  return {
    ...backend,
    validate: (spec, options) => backend.validate(own(spec), options),
    ensure(id, spec, options) {
      see(spec.limits);
      return backend.ensure(id, own(spec), options);
    },
    clone(id, spec, snapshot, options) {
      see(spec.limits);
      return backend.clone(id, own(spec), snapshot, options);
    },
    resize(id, limits, options) {
      see(limits);
      return backend.resize(id, limits, options);
    },
  };
}

describe('the policy of the operator in the control plane', () => {
  it('holds for every spec that reaches the backend, for random requests in random order', async () => {
    const amount = (max: number) => fc.option(fc.integer({ min: 64, max }), { nil: null });
    const mebibytes = (max: number) => amount(max).map((value) => value && value * MiB);
    const limits = fc.record(
      {
        cpus: amount(66),
        memoryBytes: mebibytes(1024),
        diskBytes: mebibytes(2048),
        pids: amount(256),
        openFiles: fc.integer({ min: 64, max: 2048 }),
      },
      { requiredKeys: [] },
    );
    const step = fc.record({
      verb: fc.constantFrom('create', 'snapshot', 'of snapshot', 'fork', 'change', 'restart'),
      limits: limits.map(({ cpus, ...rest }) => ({
        ...rest,
        ...(cpus !== undefined && { cpus: cpus && cpus - 63 }),
      })),
      timeoutMs: fc.constantFrom(undefined, null, 1000, 60_000, 60_001),
      pick: fc.nat(),
      tighter: fc.boolean(),
    });

    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
        const here = installation();
        const memory = memoryBackend();
        let policy: Policy = openPolicy({ maxima: { ...maxima, pids: 256, memoryBytes: 1024 * MiB } });
        const seen: Partial<Limits>[] = [];
        const backend = watched(memory, (given) => seen.push(given));
        let running = await here.open(backend, { policy });
        const boxes: string[] = [];
        const snapshots: `snap_${string}`[] = [];
        for (const { verb, limits: wanted, timeoutMs, pick, tighter } of steps) {
          const { control, principal } = running;
          const box = boxes[pick % boxes.length];
          const attempt = async (): Promise<void> => {
            const time = timeoutMs === undefined ? {} : { timeoutMs };
            if (verb === 'create')
              boxes.push((await control.create(principal, asked({ limits: wanted, ...time }))).sandbox.id);
            if (verb === 'of snapshot' && snapshots.length > 0) {
              const snapshot = snapshots[pick % snapshots.length]!;
              boxes.push((await control.create(principal, asked({ snapshot, limits: wanted }))).sandbox.id);
            }
            if (verb === 'restart' && tighter) {
              await running.kill();
              policy = openPolicy({ maxima });
              running = await here.open(backend, { policy });
            }
            if (box === undefined) return;
            if (verb === 'snapshot') snapshots.push((await control.snapshot(principal, box, {})).id);
            if (verb === 'fork')
              boxes.push(...(await control.fork(principal, box, {})).sandboxes.map(({ id }) => id));
            const { openFiles: _openFiles, ...changed } = wanted;
            if (verb === 'change') await control.update(principal, box, { limits: changed, ...time });
            if (verb === 'restart') {
              await running.control.stop(principal, box);
              seen.length = 0;
              await running.control.start(principal, box);
            }
          };
          seen.length = 0;
          await attempt().catch((error: { code?: string }) =>
            expect(error.code).toMatch(/invalid_argument|failed_precondition|resource_exhausted/),
          );
          const { abilities } = await memory.capabilities();
          for (const { diskBytes, ...given } of seen) {
            requireLimits(policy, given, abilities);
            // The disk of an existing sandbox is not lowered.
            if (verb !== 'restart' && diskBytes !== undefined)
              requireLimits(policy, { diskBytes }, abilities);
          }
        }
        await running.control.close();
        here.remove();
      }),
      { numRuns: 20 },
    );
  });

  it('lowers the limits of a stopped sandbox that starts, records an event, and leaves a running one alone', async () => {
    const memory = memoryBackend();
    const before = await place.open(memory, { policy: openPolicy() });
    const limits = { memoryBytes: 1024 * MiB, pids: 4096, diskBytes: 2048 * MiB };
    const { sandbox: stopped } = await before.control.create(before.principal, asked({ limits }));
    const { sandbox: frozen } = await before.control.create(before.principal, asked({ limits }));
    await before.control.stop(before.principal, stopped.id);
    await before.control.pause(before.principal, frozen.id, { as: 'frozen' });
    await before.kill();

    const { control, principal, events } = await place.open(memory, { policy: openPolicy({ maxima }) });
    const started = await control.start(principal, stopped.id);
    expect(started.limits).toMatchObject({ memoryBytes: 512 * MiB, pids: 128, diskBytes: 2048 * MiB });
    expect((await memory.stats(stopped.id)).memoryLimitBytes).toBe(512 * MiB);
    const updates = (await events.list({ project: principal.project, limit: 100 })).filter(
      ({ type, data }) => type === 'sandbox.updated' && String(data['fields']) === 'limits',
    );
    expect(updates.map(({ sandbox, data }) => [sandbox, data])).toEqual([
      [stopped.id, { fields: ['limits'], cause: 'policy' }],
    ]);
    const awake = await control.resume(principal, frozen.id);
    expect(awake.limits).toMatchObject(limits);
    await expect(control.fork(principal, frozen.id, {})).rejects.toMatchObject({
      code: 'invalid_argument',
      details: { limit: 'memoryBytes', maximum: 512 * MiB },
    });
    await control.close();
  });

  it('lowers the limits of a sandbox that is restored from the archive without memory', async () => {
    const memory = memoryBackend();
    const before = await place.open(memory, { policy: openPolicy() });
    const { sandbox } = await before.control.create(
      before.principal,
      asked({ limits: { memoryBytes: 1024 * MiB, pids: 4096 } }),
    );
    await before.control.pause(before.principal, sandbox.id, { as: 'archived' });
    await before.kill();

    const { control, principal } = await place.open(memory, { policy: openPolicy({ maxima }) });
    const awake = await control.resume(principal, sandbox.id);
    expect([awake.state, awake.limits]).toMatchObject(['active', { memoryBytes: 512 * MiB, pids: 128 }]);
    expect((await memory.stats(sandbox.id)).memoryLimitBytes).toBe(512 * MiB);
    await control.close();
  });

  it('refuses a snapshot with limits beyond the maximum, unless the request lowers them', async () => {
    const memory = memoryBackend();
    const before = await place.open(memory);
    const { sandbox } = await before.control.create(before.principal, asked({ limits: { pids: 4096 } }));
    const { id: snapshot } = await before.control.snapshot(before.principal, sandbox.id, {});
    await before.kill();
    const { control, principal } = await place.open(memory, {
      policy: openPolicy({ maxima: { pids: 128 } }),
    });
    await expect(control.create(principal, asked({ snapshot }))).rejects.toMatchObject({
      code: 'invalid_argument',
      details: { limit: 'pids', asked: 4096, maximum: 128 },
    });
    expect(await control.validate(principal, asked({ snapshot }))).toMatchObject({
      ok: false,
      problems: [{ field: 'limits.pids' }],
    });
    const { sandbox: made } = await control.create(principal, asked({ snapshot, limits: { pids: 64 } }));
    expect(made.limits.pids).toBe(64);
    await control.close();
  });

  it('fills in the defaults of the operator, the timeout included', async () => {
    const policy = openPolicy({ defaults: { pids: 99, timeoutMs: 5000 }, maxima: { timeoutMs: 10_000 } });
    const { control, principal } = await place.open(memoryBackend(), { policy });
    const { sandbox } = await control.create(principal, asked());
    expect([sandbox.limits.pids, sandbox.timeoutMs]).toEqual([99, 5000]);
    await expect(control.create(principal, asked({ timeoutMs: null }))).rejects.toMatchObject({
      details: { limit: 'timeoutMs' },
    });
    await expect(control.update(principal, sandbox.id, { timeoutMs: 10_001 })).rejects.toMatchObject({
      details: { limit: 'timeoutMs' },
    });
    await control.close();
  });

  it('lowers the timeouts of all sandboxes at the start, and records events', async () => {
    const memory = memoryBackend();
    const before = await place.open(memory, { policy: openPolicy() });
    const make = async (timeoutMs: number | null) =>
      (await before.control.create(before.principal, asked({ timeoutMs, onTimeout: 'stop' }))).sandbox.id;
    const [endless, long, short, resting] = [
      await make(null),
      await make(900_000),
      await make(1000),
      await make(null),
    ];
    await before.control.pause(before.principal, resting, { as: 'frozen' });
    await before.kill();

    const policy = openPolicy({ maxima: { timeoutMs: 60_000 } });
    const { control, principal, events, clock } = await place.open(memory, { policy });
    const facts = async (id: string) => {
      const { timeoutMs, expiresAtMs } = await control.get(principal, id);
      return [timeoutMs, expiresAtMs && expiresAtMs - clock.nowMs];
    };
    expect(await Promise.all([endless, long, short].map(facts))).toEqual([
      [60_000, 60_000],
      [60_000, 60_000],
      [1000, 1000],
    ]);
    expect(await facts(resting)).toEqual([60_000, null]);
    await control.resume(principal, resting);
    expect(await facts(resting)).toEqual([60_000, 60_000]);
    const updates = (await events.list({ project: principal.project, limit: 100 })).filter(
      ({ type }) => type === 'sandbox.updated',
    );
    expect(updates).toHaveLength(3);
    expect(new Set(updates.map(({ sandbox }) => sandbox))).toEqual(new Set([endless, long, resting]));
    for (const { data } of updates) expect(data).toEqual({ fields: ['timeoutMs'], cause: 'policy' });
    await control.close();
  });

  it('allows the runtime without isolation to admins only, also for an imported snapshot', async () => {
    const policy = openPolicy({ runtimes: ['memory', 'process'], allowProcess: true });
    const memory = watched(memoryBackend({ policy }), () => {}, ['process']);
    const { importSnapshot } = memory;
    memory.importSnapshot = async (id, data, options) => {
      const facts = await importSnapshot(id, data, options);
      return { ...facts, spec: { ...facts.spec, runtime: 'process' } };
    };
    const { control, principal: admin } = await place.open(memory, { policy });
    const member: Principal = { ...admin, role: 'member' };
    const refused = { code: 'permission_denied', details: { runtime: 'process' } };
    await expect(control.create(member, asked({ runtime: 'process' }))).rejects.toMatchObject(refused);
    const { sandbox } = await control.create(admin, asked({ runtime: 'process' }));
    const { id: snapshot } = await control.snapshot(admin, sandbox.id, {});
    await control.saveTemplate(admin, 'bare', { snapshot });
    for (const way of [
      () => control.create(member, asked({ snapshot })),
      () => control.create(member, asked({ template: 'bare' })),
      () => control.fork(member, sandbox.id, {}),
      async () => control.enter(member, sandbox.id),
      () => control.rollback(member, sandbox.id, { to: snapshot }),
      () => control.start(member, sandbox.id),
      () => control.resume(member, sandbox.id),
      () => control.snapshot(member, sandbox.id, {}),
      async () => await control.get(member, sandbox.id),
    ])
      await expect(way()).rejects.toMatchObject(refused);
    const innocent = (await control.create(member, asked())).sandbox;
    const kept = await control.snapshot(member, innocent.id, {});
    const { data } = await control.exportSnapshot(member, kept.id);
    const imported = await control.importSnapshot(member, data, {});
    await expect(control.create(member, asked({ snapshot: imported.id }))).rejects.toMatchObject(refused);
    await control.enter(admin, sandbox.id);
    await control.fork(admin, sandbox.id, {});
    await control.close();
  });
});
