import { CayError } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../backends/backend.ts';
// What is tested here is how the control plane gets on with several platforms.
// oxlint-disable-next-line no-restricted-imports
import { parsePlatformRules } from '../../backends/composite/platform-rules.ts';
// oxlint-disable-next-line no-restricted-imports
import { platformsBackend } from '../../backends/composite/platforms.ts';
import {
  asked,
  installation,
  memoryBackend,
  stuckBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';

let place: Installation;
let near: MemoryBackend;
let far: MemoryBackend;
let away: boolean;
let running: TestControl | undefined;
beforeEach(() => {
  place = installation();
  [near, far, away] = [memoryBackend(), memoryBackend(), false];
});
afterEach(async () => {
  await running?.control.close();
  running = undefined;
  place.remove();
});

/** The platform survives the server, and is not there while `away`. */
function lasting(backend: MemoryBackend, leaves = false): Backend {
  return new Proxy(backend, {
    get(target, name) {
      const value = Reflect.get(target, name) as unknown;
      if (name === 'close') return async () => {};
      if (!leaves || typeof value !== 'function' || name === 'watch' || name === 'snapshotFiles')
        return value;
      if (name === 'ability') return value;
      return (...values: unknown[]) =>
        away
          ? Promise.reject(new CayError('unavailable', 'nobody answers'))
          : (value as (...all: unknown[]) => unknown)(...values);
    },
  });
}

/** Both platforms; with `late` the far one cannot even be opened while it is away. */
async function both(late = false): Promise<Backend> {
  return platformsBackend({
    platforms: [
      { name: 'near', open: async () => lasting(near) },
      {
        name: 'far',
        async open() {
          if (late && away) throw new CayError('unavailable', 'nobody answers');
          return lasting(far, true);
        },
      },
    ],
    rules: parsePlatformRules('gpu=true:far'),
  });
}

async function open({ late = false } = {}): Promise<TestControl> {
  return (running = await place.open(await both(late), { reconcileMs: 20 }));
}

describe('a sandbox is made', () => {
  it('on the platform that is named, that its labels choose, or by default', async () => {
    const { control, principal } = await open();
    const make = async (input: Parameters<typeof asked>[0]) =>
      (await control.create(principal, asked(input))).sandbox;
    const made = [await make({}), await make({ platform: 'far' }), await make({ labels: { gpu: 'true' } })];
    expect(made.map(({ platform, backend }) => [platform, backend])).toEqual([
      ['near', 'near'],
      ['far', 'far'],
      ['far', 'far'],
    ]);
    expect(await make({ platform: 'near', labels: { gpu: 'true' } })).toMatchObject({ platform: 'near' });
    expect((await far.list()).map(({ id }) => id).sort()).toEqual([made[1]!.id, made[2]!.id].sort());
    expect((await control.list(principal, { limit: 10 })).sandboxes).toHaveLength(4);
    await expect(make({ platform: 'moon' })).rejects.toMatchObject({
      code: 'not_found',
      hint: 'known platforms: near, far',
    });
  });

  it('without a platform where there is one backend, whose name may be given', async () => {
    const { control, principal } = (running = await place.open(memoryBackend()));
    const { sandbox } = await control.create(principal, asked({ platform: 'memory' }));
    expect(sandbox).toMatchObject({ backend: 'memory' });
    expect(sandbox.platform).toBeUndefined();
    await expect(control.create(principal, asked({ platform: 'far' }))).rejects.toMatchObject({
      code: 'not_found',
    });
  });

  it('of a snapshot where that is, and nowhere else', async () => {
    const { control, principal } = await open();
    const { sandbox } = await control.create(principal, asked({ platform: 'far' }));
    const snapshot = await control.snapshot(principal, sandbox.id, {});
    expect((await control.create(principal, asked({ snapshot: snapshot.id }))).sandbox.platform).toBe('far');
    expect(
      (await control.fork(principal, sandbox.id, { count: 2 })).sandboxes.map(({ platform }) => platform),
    ).toEqual(['far', 'far']);
    await expect(
      control.create(principal, asked({ snapshot: snapshot.id, platform: 'near' })),
    ).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { platform: 'far' },
    });
    const { data } = await control.exportSnapshot(principal, snapshot.id);
    const moved = await control.importSnapshot(principal, data, { platform: 'near' });
    expect((await control.create(principal, asked({ snapshot: moved.id }))).sandbox.platform).toBe('near');
  });

  it('again on its own platform after it was archived', async () => {
    const { control, principal } = await open();
    const { sandbox } = await control.create(principal, asked({ platform: 'far' }));
    await control.pause(principal, sandbox.id, { as: 'archived' });
    expect(await far.list()).toEqual([]);
    await control.resume(principal, sandbox.id);
    expect((await far.list()).map(({ id }) => id)).toEqual([sandbox.id]);
  });
});

describe.each([
  { how: 'does not answer', late: false },
  { how: 'cannot even be opened', late: true },
])('a platform that $how when the server starts', ({ late }) => {
  it('loses nothing, fails nothing, and is taken up when it is back', async () => {
    const first = await open();
    const make = async (platform: string) =>
      (await first.control.create(first.principal, asked({ platform }))).sandbox.id;
    const [here, there, stopped] = [await make('near'), await make('far'), await make('far')];
    await first.control.stop(first.principal, stopped);
    const snapshot = (await first.control.snapshot(first.principal, there, { name: 'kept' })).id;
    await first.control.close();

    away = true;
    const { control, principal, events } = await open({ late });
    const look = async (id: string) => (await control.get(principal, id)).state;
    // Several rounds of comparing.
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(await Promise.all([here, there, stopped].map(look))).toEqual(['active', 'active', 'stopped']);
    expect(await control.getSnapshot(principal, snapshot)).toMatchObject({ id: snapshot });
    expect((await events.list({ limit: 1000 })).map(({ type }) => type)).not.toContain('sandbox.failed');
    await expect(control.start(principal, there)).rejects.toMatchObject({ code: 'unavailable' });
    await expect(control.create(principal, asked({ platform: 'far' }))).rejects.toMatchObject({
      code: 'unavailable',
    });
    expect((await control.enter(principal, here)).row.id).toBe(here);
    const { sandbox } = await control.create(principal, asked());
    await control.remove(principal, sandbox.id);
    const health = await control.health(principal);
    expect(health.checks.filter(({ name }) => name === 'backend')).toMatchObject([
      { level: 'ok', detail: 'near: memory' },
      { level: 'warn', detail: expect.stringContaining('far does not answer') as string },
    ]);
    expect(await control.ready()).toEqual({ records: true, backend: true });

    // What happened meanwhile is noted then.
    await far.ensure(stopped, { ...(await running!.sandboxes.get(stopped))!.spec });
    await far.stop(there);
    away = false;
    await expect
      .poll(() => Promise.all([there, stopped].map(look)), { timeout: 15_000 })
      .toEqual(['stopped', 'active']);
    expect(await control.getSnapshot(principal, snapshot)).toMatchObject({ id: snapshot });
  });
});

it('a change that was cut short is finished when its platform is back', async () => {
  const first = await open();
  const { sandbox } = await first.control.create(first.principal, asked({ platform: 'far' }));
  await first.sandboxes.update(sandbox.id, { operation: { kind: 'resize', limits: { cpus: 1 } } });
  await first.control.close();
  away = true;
  const { sandboxes } = await open();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(await sandboxes.get(sandbox.id)).toMatchObject({ state: 'active', operation: { kind: 'resize' } });
  away = false;
  await expect.poll(async () => (await sandboxes.get(sandbox.id))?.operation, { timeout: 10_000 }).toBeNull();
  expect((await sandboxes.get(sandbox.id))!.spec.limits.cpus).toBe(1);
});

it('a create that was cut short, on a platform that is away by then, leaves nothing', async () => {
  const { backend, reached } = stuckBackend(await both(), 'ensure', true);
  const killed = await place.open(backend);
  void killed.control.create(killed.principal, asked({ platform: 'far', name: 'lost' }));
  await reached;
  await killed.kill();
  expect(await far.list()).toHaveLength(1);
  away = true;
  const { control, principal } = await open();
  await expect.poll(async () => (await control.list(principal, { limit: 10 })).sandboxes).toEqual([]);
  away = false;
  await expect.poll(() => far.list(), { timeout: 10_000 }).toEqual([]);
});

it('a removal whose platform is away is finished when it is back', async () => {
  const { control, principal, clock } = await open();
  const { sandbox } = await control.create(principal, asked({ platform: 'far' }));
  away = true;
  await expect(control.remove(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
  expect((await control.get(principal, sandbox.id)).state).toBe('destroying');
  away = false;
  clock.nowMs += 60_000;
  await control.remove(principal, sandbox.id);
  expect(await far.list()).toEqual([]);
});

it('a server that has one of the platforms no more leaves their sandboxes as they are recorded', async () => {
  const first = await open();
  const { sandbox } = await first.control.create(first.principal, asked({ platform: 'far' }));
  await first.control.close();
  const only = await platformsBackend({ platforms: [{ name: 'near', open: async () => lasting(near) }] });
  const { control, principal } = (running = await place.open(only, { reconcileMs: 20 }));
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect((await control.get(principal, sandbox.id)).state).toBe('active');
  await expect(control.stop(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
});

it('sandboxes of a server with one backend are found when there are several', async () => {
  const named = Object.assign(lasting(far), { name: 'far' });
  const first = await place.open(named);
  const { sandbox } = await first.control.create(first.principal, asked());
  await first.control.close();
  away = true;
  const { control, principal } = await open();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect((await control.get(principal, sandbox.id)).state).toBe('active');
  away = false;
  expect((await control.stop(principal, sandbox.id)).state).toBe('stopped');
});
