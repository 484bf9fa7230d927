import { ListSnapshotsSchema } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../backends/backend.ts';
// What is tested here is how a sandbox gets from one platform to another.
// oxlint-disable-next-line no-restricted-imports
import { parsePlatformRules } from '../../backends/composite/platform-rules.ts';
// oxlint-disable-next-line no-restricted-imports
import { platformsBackend } from '../../backends/composite/platforms.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';
import { readText, writeText } from '../testing/text-file.ts';

const MOVE_FAULTS = [
  'control.move.recorded',
  'control.snapshot.recorded',
  'control.snapshot.taken',
  'control.move.copying',
  'control.move.copied',
  'control.move.made',
  'control.move.done',
];

let place: Installation;
let near: MemoryBackend;
let far: MemoryBackend;
beforeEach(() => {
  place = installation();
  [near, far] = [memoryBackend(), memoryBackend()];
});
afterEach(() => {
  armFaultPoints();
  place.remove();
});

/** The platforms outlive the server. */
const lasting = (backend: MemoryBackend): Backend =>
  new Proxy(backend, {
    get: (target, name) => (name === 'close' ? async () => {} : (Reflect.get(target, name) as unknown)),
  });

const both = () =>
  platformsBackend({
    platforms: [
      { name: 'near', open: async () => lasting(near) },
      { name: 'far', open: async () => lasting(far) },
    ],
    rules: parsePlatformRules(''),
  });

const open = async () => place.open(await both(), { reconcileMs: 20 });

/** A sandbox with "one" in turn 1 and "two" now. */
async function prepared(): Promise<TestControl> {
  const test = await open();
  const { control, principal } = test;
  const labels = { team: 'a' };
  await control.create(principal, asked({ name: 'box', labels, env: { A: '1' }, network: 'none' }));
  await writeText(test, 'box', 'one');
  await control.turn(principal, 'box', {});
  await writeText(test, 'box', 'two');
  return test;
}

const move = ({ control, principal }: TestControl, request: object = {}) =>
  control.move(principal, 'box', { platform: 'far', drop: ['memory'], ...request });

/** Everything that the records know is on the platform that they say, and nothing is anywhere else. */
async function misplaced({ control, principal, records }: TestControl): Promise<unknown> {
  const { sandboxes } = await control.list(principal, { limit: 100 });
  const snapshots = await records.snapshots.all();
  const on = async (backend: MemoryBackend) => ({
    sandboxes: (await backend.list()).map(({ id }) => id).toSorted(),
    snapshots: (await backend.snapshots()).map(({ id }) => id).toSorted(),
  });
  const said = (platform: string) => ({
    sandboxes: sandboxes
      .filter((each) => each.platform === platform)
      .map(({ id }) => id)
      .toSorted(),
    snapshots: snapshots
      .filter((each) => each.spec.platform === platform)
      .map(({ id }) => id)
      .toSorted(),
  });
  const [isNear, isFar] = [await on(near), await on(far)];
  const [saidNear, saidFar] = [said('near'), said('far')];
  return JSON.stringify([isNear, isFar]) === JSON.stringify([saidNear, saidFar])
    ? 'nothing'
    : { isNear, saidNear, isFar, saidFar };
}

describe('a sandbox moves to another platform', () => {
  it('with its id, name, labels, environment, network, turns and files', async () => {
    const test = await prepared();
    const { control, principal } = test;
    const before = await control.get(principal, 'box');
    const { sandbox, plan, moved } = await move(test);
    expect({ plan, moved }).toMatchObject({
      moved: true,
      plan: { from: 'near', to: 'far', snapshots: 1, losses: [{ what: 'memory' }] },
    });
    const { id, name, labels, turn, createdAtMs } = before;
    expect(sandbox).toMatchObject({ id, name, labels, turn, createdAtMs, platform: 'far', state: 'active' });
    expect(await readText(test, 'box')).toBe('two');
    expect((await test.sandboxes.get(id))?.spec.env).toEqual({ A: '1' });
    await control.rollback(principal, 'box', { to: 1 });
    expect(await readText(test, 'box')).toBe('one');
    expect((await control.turn(principal, 'box', {})).turn).toBe(2);
    expect((await control.network.get(principal, 'box')).policy).toEqual('none');
    await expect.poll(() => misplaced(test)).toBe('nothing');
    const events = await test.events.list({ project: principal.project, sandbox: id, limit: 100 });
    expect(events.find(({ type }) => type === 'sandbox.moved')?.data).toMatchObject({
      from: 'near',
      to: 'far',
    });
    await control.remove(principal, 'box');
    await control.close();
  });

  it('of a server that has one platform, which is said, and others are unknown there', async () => {
    const test = await place.open(lasting(near), {});
    const { control, principal } = test;
    await control.create(principal, asked({ name: 'box' }));
    await expect(move(test, { platform: 'moon' })).rejects.toMatchObject({ code: 'not_found' });
    await expect(move(test, { platform: near.name })).rejects.toMatchObject({ code: 'unsupported' });
    await control.close();
  });

  it('and back again, stopped as it was', async () => {
    const test = await prepared();
    const { control, principal } = test;
    await control.stop(principal, 'box');
    expect((await move(test, { drop: [] })).sandbox).toMatchObject({ state: 'stopped', platform: 'far' });
    expect((await move(test, { platform: 'near', drop: [] })).sandbox).toMatchObject({ platform: 'near' });
    await control.start(principal, 'box');
    expect(await readText(test, 'box')).toBe('two');
    await expect.poll(() => misplaced(test)).toBe('nothing');
    await control.close();
  });

  it('only if what it loses may be lost, and a dry run says what that is', async () => {
    const test = await prepared();
    const { control, principal } = test;
    const volume = await control.volumes.create(principal, {
      name: 'data',
      platform: 'near',
      readOnly: false,
      labels: {},
    });
    await control.create(
      principal,
      asked({ name: 'mounted', mounts: [{ type: 'volume', volume: volume.name, path: '/data' }] }),
    );
    const { plan, moved } = await control.move(principal, 'mounted', { platform: 'far', dryRun: true });
    expect({ moved, what: plan.losses.map(({ what }) => what) }).toEqual({
      moved: false,
      what: ['memory', 'volumes'],
    });
    await expect(move(test, { drop: [] })).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { losses: [{ what: 'memory' }] },
    });
    await expect(
      control.move(principal, 'mounted', { platform: 'far', drop: ['memory'] }),
    ).rejects.toMatchObject({
      details: { losses: [{ what: 'volumes' }] },
    });
    await expect(move(test, { platform: 'near' })).rejects.toMatchObject({ code: 'failed_precondition' });
    await expect(move(test, { platform: 'moon' })).rejects.toMatchObject({ code: 'not_found' });
    expect(await readText(test, 'box')).toBe('two');
    const { sandbox } = await control.move(principal, 'mounted', {
      platform: 'far',
      drop: ['memory', 'volumes'],
    });
    expect(sandbox).toMatchObject({ platform: 'far', mounts: [] });
    await control.close();
  });

  it('only if the quota has room for the copies, and is as before if not', async () => {
    const test = await prepared();
    const { control, principal } = test;
    await test.projects.setQuota(principal.project, { snapshotBytes: 64 });
    await expect(move(test)).rejects.toMatchObject({
      code: 'resource_exhausted',
      details: { quota: 'snapshotBytes' },
    });
    expect(await readText(test, 'box')).toBe('two');
    expect(await control.get(principal, 'box')).toMatchObject({ platform: 'near', state: 'active' });
    expect(await misplaced(test)).toBe('nothing');
    await test.control.close();
  });

  it('without snapshots that others need, which stay where they are', async () => {
    const test = await prepared();
    const { control, principal } = test;
    const { snapshots } = await control.snapshots(principal, ListSnapshotsSchema.parse({}));
    await control.create(principal, asked({ name: 'other', snapshot: snapshots[0]!.id }));
    const { plan } = await move(test, { drop: ['memory', 'snapshots'] });
    expect(plan.losses).toMatchObject([{ what: 'memory' }, { what: 'snapshots' }]);
    expect((await test.records.snapshots.get(snapshots[0]!.id))?.spec.platform).toBe('near');
    await expect.poll(() => misplaced(test)).toBe('nothing');
    await control.close();
  });

  it('says when the platform keeps no files but those of a few directories', async () => {
    const { capabilities } = far;
    far.capabilities = async () => {
      const known = await capabilities.call(far);
      return { ...known, abilities: { ...known.abilities, snapshotRoot: false } };
    };
    const test = await prepared();
    await expect(move(test)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { losses: [{ what: 'files' }] },
    });
    const { moved } = await move(test, { drop: ['memory', 'files'] });
    expect(moved).toBe(true);
  });
});

describe('a move that is cut off', () => {
  it.each(MOVE_FAULTS)('by a failure at %s leaves the sandbox on one platform', async (point) => {
    const test = await prepared();
    armFaultPoints({ [point]: 'error' });
    await move(test).catch(() => {});
    armFaultPoints();
    await expect.poll(() => misplaced(test)).toBe('nothing');
    const { control, principal } = test;
    // After it was recorded that it is there, the sandbox stays there.
    if ((await control.get(principal, 'box')).state === 'stopped') {
      expect(point).toBe('control.move.done');
      await control.start(principal, 'box');
    }
    expect(await readText(test, 'box')).toBe('two');
    await control.close();
  });

  it.each(MOVE_FAULTS)('by a kill at %s leaves the sandbox on one platform', async (point) => {
    const first = await prepared();
    const reached = Promise.withResolvers<void>();
    armFaultPoints({
      [point]: () => {
        reached.resolve();
        return new Promise(() => {});
      },
    });
    void move(first).catch(reached.reject);
    await reached.promise;
    await first.kill();
    armFaultPoints();
    const second = await open();
    await expect.poll(() => misplaced(second)).toBe('nothing');
    const { control, principal } = second;
    if ((await control.get(principal, 'box')).state === 'stopped') await control.start(principal, 'box');
    expect(await readText(second, 'box')).toBe('two');
    await control.rollback(principal, 'box', { to: 1 });
    expect(await readText(second, 'box')).toBe('one');
    expect(second.errors).toEqual([]);
    await control.close();
  });

  it('and back to where snapshots of it have stayed, which are kept', async () => {
    const test = await prepared();
    const { control, principal, records } = test;
    await move(test, { drop: ['memory', 'snapshots'] });
    const stayed = (await records.snapshots.all()).filter(({ spec }) => spec.platform === 'near');
    expect(stayed.length).toBeGreaterThan(0);
    await control.move(principal, 'box', { platform: 'near', drop: ['memory'] });
    expect((await control.get(principal, 'box')).platform).toBe('near');
    const left = (await records.snapshots.all()).map(({ id }) => id);
    for (const { id } of stayed) expect(left).toContain(id);
    expect(await misplaced(test)).toBe('nothing');
    expect(await readText(test, 'box')).toBe('two');
  });

  it.each(MOVE_FAULTS)('and back, killed at %s, and what has stayed there is kept', async (point) => {
    const first = await prepared();
    await move(first, { drop: ['memory', 'snapshots'] });
    const stayed = (await first.records.snapshots.all()).filter(({ spec }) => spec.platform === 'near');
    expect(stayed.length).toBeGreaterThan(0);
    const reached = Promise.withResolvers<void>();
    armFaultPoints({
      [point]: () => {
        reached.resolve();
        return new Promise(() => {});
      },
    });
    void first.control
      .move(first.principal, 'box', { platform: 'near', drop: ['memory'] })
      .catch(reached.reject);
    await reached.promise;
    await first.kill();
    armFaultPoints();
    const second = await open();
    await expect.poll(() => misplaced(second)).toBe('nothing');
    const there = (await near.snapshots()).map(({ id }) => id);
    for (const { id } of stayed) expect(there).toContain(id);
    await second.control.close();
  });
});
