import { QuotaSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Guest } from '../../guest/guest.ts';
import type { Control } from '../open-control.ts';
import { hibernatingBackend } from '../testing/hibernating-backend.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';
import { readText, writeText } from '../testing/text-file.ts';

let place: Installation;
let memory: MemoryBackend;
let backend: ReturnType<typeof hibernatingBackend>;
let opened: TestControl;
let control: Control;
beforeEach(async () => {
  place = installation();
  memory = memoryBackend();
  backend = hibernatingBackend(memory);
  opened = await place.open(backend);
  control = opened.control;
});
afterEach(async () => {
  await control.close();
  expect(opened.errors).toEqual([]);
  place.remove();
});

const me = () => opened.principal;
const create = async (input: Parameters<typeof asked>[0] = {}): Promise<SandboxId> =>
  (await control.create(me(), asked(input))).sandbox.id;
const run = (guest: Guest, id: string, ...argv: string[]) =>
  guest.exec({ id, argv, env: {}, workdir: '/', user: 'user' });

async function echo(id: string): Promise<string> {
  const { guest } = await control.enter(me(), id);
  await using handle = await run(guest, `echo-${Math.random()}`, 'echo', 'hi');
  const chunks = await Array.fromAsync(handle.output);
  return chunks.map((chunk) => (chunk.channel === 'gap' ? '' : Buffer.from(chunk.data).toString())).join('');
}

describe('a paused sandbox', () => {
  it.each([
    ['frozen', { phase: 'ready', frozen: true }],
    ['suspended', { phase: 'stopped', suspended: true }],
    ['hibernated', { phase: 'hibernated' }],
    ['archived', { phase: 'absent' }],
  ] as const)('that is %s wakes for a command', async (as, observed) => {
    const id = await create();
    expect(await control.pause(me(), id, { as })).toMatchObject({
      state: 'paused',
      pausedAs: as,
      expiresAtMs: null,
    });
    expect(await backend.observe(id)).toMatchObject(observed);
    expect(await echo(id)).toBe('hi\n');
    expect(control.get(me(), id)).toMatchObject({ state: 'active', pausedAs: null });
    expect(opened.events.list({}).map(({ type }) => type)).toEqual(
      expect.arrayContaining(['sandbox.paused', 'sandbox.resumed']),
    );
  });

  it('hibernates if nothing else is asked for, goes further down, and never up', async () => {
    const id = await create();
    expect((await control.pause(me(), id, {})).pausedAs).toBe('hibernated');
    expect((await control.pause(me(), id, { as: 'frozen' })).pausedAs).toBe('hibernated');
    expect((await control.pause(me(), id, { as: 'archived' })).pausedAs).toBe('archived');
    expect((await control.pause(me(), id, {})).pausedAs).toBe('archived');
    expect((await control.resume(me(), id)).state).toBe('active');
  });

  it('is suspended where nothing else is possible, and wakes with its files as another incarnation', async () => {
    const other = installation();
    const plain = memoryBackend();
    const test = await other.open({
      ...plain,
      ability: (name) => (name === 'freeze' ? undefined : plain.ability(name)),
    });
    const { id } = (await test.control.create(test.principal, asked())).sandbox;
    await writeText(test, id, 'kept');
    expect(await test.control.pause(test.principal, id, {})).toMatchObject({
      state: 'paused',
      pausedAs: 'suspended',
    });
    expect(await readText(test, id)).toBe('kept');
    expect(test.control.get(test.principal, id)).toMatchObject({ state: 'active', incarnation: 2 });
    // One that was suspended and not recorded so, by a server that died in between.
    await plain.suspend(id);
    await expect
      .poll(() => test.control.get(test.principal, id))
      .toMatchObject({ state: 'paused', pausedAs: 'suspended' });
    expect((await test.control.stop(test.principal, id)).state).toBe('stopped');
    expect((await plain.observe(id)).suspended).toBeUndefined();
    await expect(test.control.enter(test.principal, id)).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    await test.control.close();
    expect(test.errors).toEqual([]);
    other.remove();
  });

  it('wakes once for many callers, also for those that hold a guest from before', async () => {
    const id = await create();
    const { guest } = await control.enter(me(), id);
    await control.pause(me(), id, { as: 'hibernated' });
    let woken = 0;
    const { ensure } = backend;
    backend.ensure = (...given) => {
      woken++;
      return ensure(...given);
    };
    const early = guest.files('user').list('/home');
    await Promise.all([
      ...Array.from({ length: 8 }, () => echo(id)),
      guest.commands(),
      Array.fromAsync(early),
    ]);
    expect(woken).toBe(1);
  });

  it('wakes for preview traffic, and not for a stranger', async () => {
    const id = await create({ ports: [3000] });
    const [port] = control.get(me(), id).ports;
    await control.pause(me(), id, {});
    await expect(control.preview(id, 3000, 'wrong')).rejects.toMatchObject({ code: 'not_found' });
    expect(control.get(me(), id).state).toBe('paused');
    const guest = await control.preview(id, 3000, port!.token);
    await expect(guest.ports.connect(3000)).rejects.toMatchObject({ code: 'unavailable' });
    expect(control.get(me(), id).state).toBe('active');
  });

  it('counts in the quota what it still takes', async () => {
    const GiB = 1024 ** 3;
    opened.projects.setQuota(me().project, QuotaSchema.parse({ cpus: 2, memoryBytes: 2 * GiB }));
    const limits = { cpus: 2, memoryBytes: 2 * GiB };
    const id = await create({ limits });
    await control.pause(me(), id, { as: 'frozen' });
    await expect(create({ limits })).rejects.toMatchObject({ code: 'resource_exhausted' });
    await control.pause(me(), id, { as: 'hibernated' });
    const other = await create({ limits });
    await expect(control.resume(me(), id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(control.get(me(), id)).toMatchObject({ state: 'paused', pausedAs: 'hibernated' });
    await control.stop(me(), other);
    expect((await control.resume(me(), id)).state).toBe('active');
  });

  it.each(['frozen', 'hibernated', 'archived'] as const)(
    'that is %s can be stopped, started, rolled back, forked and removed',
    async (as) => {
      const id = await create();
      await control.turn(me(), id, {});
      await control.pause(me(), id, { as });
      expect(await control.stop(me(), id)).toMatchObject({ state: 'stopped', pausedAs: null });
      await control.start(me(), id);
      await control.pause(me(), id, { as });
      expect((await control.rollback(me(), id, { to: 1 })).sandbox.state).toBe('active');
      await control.pause(me(), id, { as });
      expect((await control.fork(me(), id, { count: 2 })).sandboxes.map(({ state }) => state)).toEqual([
        'active',
        'active',
      ]);
      await control.pause(me(), id, { as });
      await control.remove(me(), id);
      expect((await backend.observe(id)).phase).toBe('absent');
      expect(place.archived().filter((name) => name.startsWith(id))).toEqual([]);
    },
  );

  it('has failed if its backend says so', async () => {
    const id = await create();
    await control.pause(me(), id, { as: 'frozen' });
    memory.crash(id, 'oom_killed');
    await expect
      .poll(() => control.get(me(), id))
      .toMatchObject({ state: 'failed', reason: 'oom_killed', pausedAs: null });
    await expect(control.resume(me(), id)).rejects.toMatchObject({ code: 'failed_precondition' });
    await expect(control.pause(me(), id, {})).rejects.toMatchObject({ code: 'failed_precondition' });
  });
});

describe('a pause', () => {
  it('waits for commands, and lets newcomers wait for it', async () => {
    const id = await create();
    const { guest } = await control.enter(me(), id);
    const long = await run(guest, 'long', 'sleep', '1000');
    const paused = control.pause(me(), id, { as: 'frozen', waitMs: 60_000 });
    const newcomer = echo(id);
    expect(control.get(me(), id).state).toBe('active');
    // Straight to the backend: whoever asks through the front waits.
    await (await memory.connect(id)).signal('long', 'SIGKILL');
    for await (const _ of long.output);
    await long[Symbol.asyncDispose]();
    expect((await paused).pausedAs).toBe('frozen');
    expect(await newcomer).toBe('hi\n');
    expect(control.get(me(), id).state).toBe('active');
  });

  it('pauses what still runs as it is', async () => {
    const id = await create();
    const { guest } = await control.enter(me(), id);
    await using _ = await run(guest, 'long', 'sleep', '1000');
    expect((await control.pause(me(), id, { as: 'frozen', waitMs: 10 })).pausedAs).toBe('frozen');
    expect((await guest.commands()).map(({ id: command, end }) => ({ command, end }))).toEqual([
      { command: 'long', end: undefined },
    ]);
  });

  it('is refused where the rung is not there', async () => {
    const other = installation();
    const plain = memoryBackend();
    const test = await other.open(plain);
    const { sandbox } = await test.control.create(test.principal, asked());
    await expect(test.control.pause(test.principal, sandbox.id, { as: 'hibernated' })).rejects.toMatchObject({
      code: 'unsupported',
    });
    expect((await test.control.pause(test.principal, sandbox.id, {})).pausedAs).toBe('frozen');
    await test.control.close();
    other.remove();
  });
});

describe('an archived sandbox', () => {
  it('has nothing left here, and its snapshots come back when they are needed', async () => {
    const id = await create();
    await writeText(opened, id, 'one');
    await control.turn(me(), id, {});
    await writeText(opened, id, 'two');
    const { id: shared } = await control.snapshot(me(), id, { name: 'shared' });
    const { sandbox: fork } = await control.create(me(), asked({ snapshot: shared }));
    await control.pause(me(), id, { as: 'archived' });
    // What another sandbox stands on stays.
    expect((await backend.snapshots()).map((facts) => facts.id)).toEqual([shared]);
    expect(place.archived()).toHaveLength(2);
    expect(control.getSnapshot(me(), 1, { sandbox: id }).archived).toBe(true);
    const exported = await control.exportSnapshot(me(), 1, { sandbox: id });
    expect(Buffer.concat(await Array.fromAsync(exported.data)).length).toBeGreaterThan(0);
    await expect(control.removeSnapshot(me(), control.get(me(), id).base!)).rejects.toMatchObject({
      code: 'failed_precondition',
    });

    await control.resume(me(), id);
    const read = () => readText(opened, id);
    expect(await read()).toBe('two');
    expect(place.archived()).toHaveLength(1);
    await control.rollback(me(), id, { to: 1 });
    expect(await read()).toBe('one');
    expect(place.archived()).toHaveLength(0);
    expect(control.getSnapshot(me(), 1, { sandbox: id }).archived).toBe(false);
    await control.remove(me(), fork.id);
  });

  it('leaves no more behind, however often it comes and goes', async () => {
    const id = await create();
    for (let round = 0; round < 4; round++) {
      await control.pause(me(), id, { as: 'archived' });
      await control.resume(me(), id);
    }
    expect(control.snapshots(me(), { limit: 100 }).snapshots.length).toBeLessThanOrEqual(2);
    await control.remove(me(), id);
    expect([await backend.snapshots(), place.archived()]).toEqual([[], []]);
  });

  it('is removed with what it has in the store', async () => {
    const id = await create();
    await control.turn(me(), id, {});
    await control.pause(me(), id, { as: 'archived' });
    await control.remove(me(), id);
    expect(place.archived()).toHaveLength(0);
    expect(await backend.snapshots()).toEqual([]);
  });
});

describe('a timeout', () => {
  const poke = async () => void (await control.update(me(), await create(), { labels: {} }));

  it.each([
    ['pause', 'hibernated'],
    ['archive', 'archived'],
  ] as const)('that asks to %s leaves it %s, and waking starts a new one', async (onTimeout, pausedAs) => {
    const id = await create({ timeoutMs: 60_000, onTimeout });
    opened.clock.nowMs += 60_001;
    await poke();
    await expect
      .poll(() => control.get(me(), id))
      .toMatchObject({ state: 'paused', pausedAs, expiresAtMs: null });
    expect(await control.resume(me(), id)).toMatchObject({ expiresAtMs: opened.clock.nowMs + 60_000 });
  });

  it('can be changed while it runs', async () => {
    const id = await create({ timeoutMs: 60_000 });
    await control.update(me(), id, { timeoutMs: 600_000, onTimeout: 'destroy' });
    opened.clock.nowMs += 61_000;
    await poke();
    expect(control.get(me(), id)).toMatchObject({ state: 'active', onTimeout: 'destroy' });
    opened.clock.nowMs += 600_000;
    await poke();
    await expect.poll(async () => (await backend.observe(id)).phase).toBe('absent');
  });
});
