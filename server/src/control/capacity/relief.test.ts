import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import type { Measuring } from '../../backends/backend.ts';
import { hibernatingBackend } from '../testing/hibernating-backend.ts';
import {
  asked,
  installation,
  measuredBackend,
  memoryBackend,
  type Installation,
  type TestControl,
} from '../testing/test-control.ts';
import type { PressureSettings } from './pressure.ts';

const GiB = 1024 ** 3;
const SOON = { timeout: 15_000 };
const LOOK_EVERY_MS = 100;

let place: Installation;
let opened: TestControl;
let left: { memory: number; disk: number };

async function open(pressure: Partial<PressureSettings> = {}): Promise<void> {
  const capacity: Measuring['capacity'] = async () => ({
    memory: { totalBytes: 16 * GiB, freeBytes: left.memory },
    disk: { totalBytes: 100 * GiB, freeBytes: left.disk },
  });
  const backend = measuredBackend(hibernatingBackend(memoryBackend()), capacity);
  opened = await place.open(backend, {
    pressure: { lookEveryMs: LOOK_EVERY_MS, ...pressure },
    reclaimUnusedMs: 1_000,
  });
}

beforeEach(() => {
  place = installation();
  left = { memory: 12 * GiB, disk: 90 * GiB };
});
afterEach(async () => {
  await opened.control.close();
  expect(opened.errors).toEqual([]);
  place.remove();
});

const limits = { memoryBytes: 2 * GiB, diskBytes: 10 * GiB };
const create = async (more: object = {}): Promise<SandboxId> =>
  (await opened.control.create(opened.principal, asked({ limits, ...more }))).sandbox.id;
const state = async (id: SandboxId) => {
  const { state: now, pausedAs } = await opened.control.get(opened.principal, id);
  return pausedAs ?? now;
};
const refusal = (operation: Promise<unknown>) =>
  operation.then(
    () => undefined,
    (error: unknown) =>
      isCayError(error, 'resource_exhausted') ? error.details : Promise.reject(error as Error),
  );

describe('admission', () => {
  it('bounds the promises of all sandboxes by the overcommit, and counts paused ones by their level', async () => {
    await open({ memoryOvercommit: 0.25, diskOvercommit: 0.35 });
    const one = await create();
    const two = await create();
    expect(await refusal(create())).toMatchObject({
      resource: 'memory',
      fits: 0,
      retryAfterMs: expect.any(Number),
    });
    // Its memory is on disk, and its files are too.
    await opened.control.pause(opened.principal, one, { as: 'hibernated' });
    const three = await create();
    expect(await refusal(opened.control.resume(opened.principal, one))).toMatchObject({ resource: 'memory' });
    await opened.control.stop(opened.principal, two);
    expect(await refusal(create())).toMatchObject({ resource: 'disk' });
    await opened.control.resume(opened.principal, one);
    expect(await refusal(opened.control.start(opened.principal, two))).toMatchObject({ resource: 'memory' });
    await opened.control.remove(opened.principal, three);
    await opened.control.start(opened.principal, two);
  });

  it('makes all children of a fork or none, and leaves nothing of a refused one', async () => {
    await open({ memoryOvercommit: 0.375 });
    const id = await create();
    expect(await refusal(opened.control.fork(opened.principal, id, { count: 3 }))).toMatchObject({
      resource: 'memory',
    });
    expect(await opened.sandboxes.list({})).toHaveLength(1);
    const { sandboxes } = await opened.control.fork(opened.principal, id, { count: 2 });
    expect(sandboxes).toHaveLength(2);
  });

  it('refuses while a resource is nearly out, and reports that in health and events', async () => {
    left.disk = 1 * GiB;
    await open();
    expect(await refusal(create())).toMatchObject({ resource: 'disk' });
    expect(await opened.control.health(opened.principal)).toMatchObject({ verdict: 'critical' });
    const [event] = await opened.events.list({});
    expect(event).toMatchObject({
      type: 'pressure.changed',
      data: { resource: 'disk', level: 'critical', before: 'ok' },
    });
    left.disk = 90 * GiB;
    await expect
      .poll(async () => (await opened.events.list({})).at(-1)?.data, SOON)
      .toMatchObject({ level: 'ok', before: 'critical' });
    await create();
  });
});

describe('making room', () => {
  it('freezes unused sandboxes, then hibernates them, and their timeouts go on', async () => {
    await open();
    const used = await create();
    const leased = await create();
    const id = await create({ timeoutMs: 3_600_000 });
    const expiresAtMs = (await opened.control.get(opened.principal, id)).expiresAtMs;
    const { guest } = await opened.control.enter(opened.principal, used);
    const command = await guest.exec({
      id: 'cmd_sleeps',
      argv: ['sleep', '1000'],
      env: {},
      workdir: '/',
      user: 'user',
    });
    await opened.control.lease(opened.principal, leased, { forMs: 3_600_000 });
    opened.clock.nowMs += 60_000;
    left.memory = 2 * GiB;
    await expect.poll(() => state(id), SOON).toBe('frozen');
    left.memory = 0.5 * GiB;
    await expect.poll(() => state(id), SOON).toBe('hibernated');
    expect([await state(used), await state(leased)]).toEqual(['active', 'active']);
    const causes = (await opened.events.list({ sandbox: id })).filter(
      ({ type }) => type === 'sandbox.paused',
    );
    expect(causes.map(({ data }) => data['cause'])).toEqual(['pressure', 'pressure']);
    expect((await opened.sandboxes.get(id))?.expiresAtMs).toBe(expiresAtMs);
    left.memory = 12 * GiB;
    await expect.poll(() => refusal(opened.control.resume(opened.principal, id)), SOON).toBeUndefined();
    expect((await opened.control.get(opened.principal, id)).expiresAtMs).toBe(expiresAtMs);
    await command[Symbol.asyncDispose]();
  });

  it('ends a sandbox that it paused at its timeout', async () => {
    await open();
    const [stops, goes] = [
      await create({ timeoutMs: 120_000, onTimeout: 'stop' }),
      await create({ timeoutMs: 120_000, onTimeout: 'destroy' }),
    ];
    opened.clock.nowMs += 60_000;
    left.memory = 2 * GiB;
    await expect
      .poll(async () => [await state(stops), await state(goes)], SOON)
      .toEqual(['frozen', 'frozen']);
    opened.clock.nowMs += 60_000;
    await expect.poll(() => state(stops), SOON).toBe('stopped');
    await expect.poll(async () => await opened.sandboxes.get(goes), SOON).toBeUndefined();
  });

  it('pauses nothing if it is turned off', async () => {
    await open({ reclaim: false });
    const id = await create();
    opened.clock.nowMs += 60_000;
    left.memory = 0.5 * GiB;
    await expect.poll(async () => (await opened.events.list({})).at(-1)?.type, SOON).toBe('pressure.changed');
    await new Promise((resolve) => setTimeout(resolve, 5 * LOOK_EVERY_MS));
    expect(await state(id)).toBe('active');
  });
});
