import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../backends/backend.ts';
import {
  asked,
  installation,
  memoryBackend,
  stuckBackend,
  type Installation,
  type MemoryBackend,
} from './testing/test-control.ts';

let place: Installation;
let backend: MemoryBackend;

beforeEach(() => {
  place = installation();
  backend = memoryBackend();
});
afterEach(() => place.remove());

const phase = async (id: SandboxId) => (await backend.observe(id)).phase;

describe('the control plane', () => {
  it('takes a sandbox through its life and records each step', async () => {
    const { control, principal, events } = await place.open(backend);
    const { sandbox, created } = await control.create(principal, asked({ name: 'box', labels: { a: '1' } }));
    expect(created).toBe(true);
    expect(sandbox).toMatchObject({ name: 'box', state: 'active', incarnation: 1 });
    expect((await control.stop(principal, 'box')).state).toBe('stopped');
    expect(await phase(sandbox.id)).toBe('stopped');
    await expect(control.enter(principal, 'box')).rejects.toMatchObject({
      code: 'failed_precondition',
      hint: 'start it first',
    });
    expect(await control.start(principal, 'box')).toMatchObject({ state: 'active', incarnation: 2 });
    await control.remove(principal, 'box');
    await control.remove(principal, 'box');
    expect(await phase(sandbox.id)).toBe('absent');
    expect((await events.list({})).map(({ type }) => type)).toEqual([
      'sandbox.created',
      'sandbox.stopped',
      'sandbox.started',
      'sandbox.removed',
    ]);
    await control.close();
  });

  it('leaves no record and uses up no idempotency key when a sandbox cannot be made', async () => {
    let fail = true;
    const failing: Backend = new Proxy(backend, {
      get: (target, name) =>
        name === 'ensure' && fail
          ? async () => {
              throw new CayError('unavailable', 'not now');
            }
          : (Reflect.get(target, name) as unknown),
    });
    const { control, principal } = await place.open(failing);
    const create = () => control.create(principal, asked({ name: 'box' }), { idempotencyKey: 'k' });
    await expect(create()).rejects.toMatchObject({ code: 'unavailable' });
    expect((await control.list(principal, { limit: 10 })).sandboxes).toEqual([]);
    fail = false;
    expect((await create()).created).toBe(true);
    await control.close();
  });

  it('pages through a listing, newest first, and filters by label and state', async () => {
    const { control, principal, clock } = await place.open(backend);
    for (let i = 0; i < 5; i++) {
      clock.nowMs += 1;
      await control.create(principal, asked({ name: `box-${i}`, labels: { parity: String(i % 2) } }));
    }
    const first = await control.list(principal, { limit: 2 });
    const second = await control.list(principal, { limit: 2, cursor: first.nextCursor! });
    const third = await control.list(principal, { limit: 2, cursor: second.nextCursor! });
    expect([first, second, third].flatMap(({ sandboxes }) => sandboxes.map(({ name }) => name))).toEqual([
      'box-4',
      'box-3',
      'box-2',
      'box-1',
      'box-0',
    ]);
    expect(third.nextCursor).toBeNull();
    expect((await control.list(principal, { limit: 10, label: 'parity=1' })).sandboxes).toHaveLength(2);
    await control.stop(principal, 'box-0');
    expect(
      (await control.list(principal, { limit: 10, state: 'stopped' })).sandboxes.map(({ name }) => name),
    ).toEqual(['box-0']);
    await expect(control.list(principal, { limit: 1, cursor: 'bad' })).rejects.toThrow(CayError);
    await control.close();
  });

  it('ends sandboxes at their timeout', async () => {
    const { control, principal, clock } = await place.open(backend);
    const { sandbox: stopping } = await control.create(
      principal,
      asked({ timeoutMs: 60_000, onTimeout: 'stop' }),
    );
    const { sandbox: going } = await control.create(
      principal,
      asked({ timeoutMs: 60_000, onTimeout: 'destroy' }),
    );
    const { sandbox: staying } = await control.create(principal, asked({ timeoutMs: 60_000 }));
    await control.update(principal, staying.id, { timeoutMs: null });
    clock.nowMs += 60_001;
    // Any change makes the timer read the clock again.
    await control.update(principal, staying.id, { labels: {} });
    await expect.poll(async () => (await control.get(principal, stopping.id)).state).toBe('stopped');
    await expect.poll(() => phase(going.id)).toBe('absent');
    expect((await control.get(principal, staying.id)).state).toBe('active');
    await control.close();
  });

  it('records sandboxes that end by themselves', async () => {
    const { control, principal } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    backend.crash(sandbox.id, 'oom_killed');
    await expect
      .poll(async () => await control.get(principal, sandbox.id))
      .toMatchObject({ state: 'failed', reason: 'oom_killed' });
    expect((await control.start(principal, sandbox.id)).state).toBe('active');
    await control.close();
  });
});

describe('a control plane that was killed', () => {
  it.each([false, true])('finishes a create whose operation was done: %s', async (done) => {
    const stuck = stuckBackend(backend, 'ensure', done);
    const first = await place.open(stuck.backend);
    void first.control.create(first.principal, asked({ name: 'box' }), { idempotencyKey: 'k' });
    await stuck.reached;
    await first.kill();
    const { control, principal } = await place.open(backend);
    const { sandbox, created } = await control.create(principal, asked({ name: 'box' }), {
      idempotencyKey: 'k',
    });
    expect(created).toBe(false);
    expect(sandbox.state).toBe('active');
    expect(await phase(sandbox.id)).toBe('ready');
    await control.close();
  });

  it.each([false, true])('finishes a removal whose operation was done: %s', async (done) => {
    const stuck = stuckBackend(backend, 'remove', done);
    const first = await place.open(stuck.backend);
    const { sandbox } = await first.control.create(first.principal, asked());
    void first.control.remove(first.principal, sandbox.id);
    await stuck.reached;
    await first.kill();
    const { sandboxes } = await place.open(backend);
    await expect.poll(async () => await sandboxes.get(sandbox.id)).toBeUndefined();
    expect(await phase(sandbox.id)).toBe('absent');
  });

  it.each([false, true])('finds a stop as it is, whose operation was done: %s', async (done) => {
    const stuck = stuckBackend(backend, 'stop', done);
    const first = await place.open(stuck.backend);
    const { sandbox } = await first.control.create(first.principal, asked());
    void first.control.stop(first.principal, sandbox.id);
    await stuck.reached;
    await first.kill();
    const { control, principal } = await place.open(backend);
    expect((await control.get(principal, sandbox.id)).state).toBe(done ? 'stopped' : 'active');
    await control.close();
  });

  it('records a start that was done, and sandboxes that ended meanwhile', async () => {
    const first = await place.open(backend);
    const { sandbox: started } = await first.control.create(first.principal, asked());
    const { sandbox: crashed } = await first.control.create(first.principal, asked());
    await first.control.stop(first.principal, started.id);
    const { spec } = (await first.sandboxes.get(started.id))!;
    await first.kill();
    await backend.ensure(started.id, spec);
    await backend.remove(crashed.id);
    const { control, principal } = await place.open(backend);
    await expect.poll(async () => (await control.get(principal, started.id)).state).toBe('active');
    expect(await control.get(principal, crashed.id)).toMatchObject({
      state: 'failed',
      reason: 'removed_outside',
    });
    await control.close();
  });

  it.each([
    ['start', 'active'],
    ['stay', 'stopped'],
  ] as const)('lets what the machine has ended %s as it asks for', async (onBoot, state) => {
    const first = await place.open(backend);
    const { sandbox } = await first.control.create(first.principal, asked({ onBoot }));
    const { sandbox: frozen } = await first.control.create(first.principal, asked({ onBoot }));
    await first.control.pause(first.principal, frozen.id, { as: 'frozen' });
    await first.kill();
    backend.crash(sandbox.id, 'host_restarted');
    backend.crash(frozen.id, 'host_restarted');
    const { control, principal } = await place.open(backend);
    await expect.poll(async () => (await control.get(principal, sandbox.id)).state).toBe(state);
    await expect.poll(async () => (await control.get(principal, frozen.id)).state).toBe(state);
    if (onBoot === 'stay') expect((await control.get(principal, sandbox.id)).reason).toBe('host_restarted');
    await control.close();
  });

  it('removes sandboxes without a record', async () => {
    const other = installation();
    const stranger = await other.open(backend);
    const { sandbox } = await stranger.control.create(stranger.principal, asked());
    await stranger.kill();
    other.remove();
    const { control } = await place.open(backend);
    expect(await phase(sandbox.id)).toBe('absent');
    await control.close();
  });
});
