import { QuotaSchema } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { Guest } from '../../guest/guest.ts';
import { useControl } from '../testing/control-fixture.ts';
import { asked, installation, memoryBackend } from '../testing/test-control.ts';
import { readText, writeText } from '../testing/text-file.ts';

const fixture = useControl({ hibernates: true });
const { me, create } = fixture;
const run = (guest: Guest, id: string, ...argv: string[]) =>
  guest.exec({ id, argv, env: {}, workdir: '/', user: 'user' });

async function echo(id: string): Promise<string> {
  const { guest } = await fixture.control.enter(me(), id);
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
    expect(await fixture.control.pause(me(), id, { as })).toMatchObject({
      state: 'paused',
      pausedAs: as,
      expiresAtMs: null,
    });
    expect(await fixture.backend.observe(id)).toMatchObject(observed);
    expect(await echo(id)).toBe('hi\n');
    expect(await fixture.control.get(me(), id)).toMatchObject({ state: 'active', pausedAs: null });
    expect((await fixture.opened.events.list({})).map(({ type }) => type)).toEqual(
      expect.arrayContaining(['sandbox.paused', 'sandbox.resumed']),
    );
  });

  it('hibernates by default, can be paused deeper, and never lighter', async () => {
    const id = await create();
    expect((await fixture.control.pause(me(), id, {})).pausedAs).toBe('hibernated');
    expect((await fixture.control.pause(me(), id, { as: 'frozen' })).pausedAs).toBe('hibernated');
    expect((await fixture.control.pause(me(), id, { as: 'archived' })).pausedAs).toBe('archived');
    expect((await fixture.control.pause(me(), id, {})).pausedAs).toBe('archived');
    expect((await fixture.control.resume(me(), id)).state).toBe('active');
  });

  it('is suspended where no other level is possible, and wakes with its files as another incarnation', async () => {
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
    expect(await test.control.get(test.principal, id)).toMatchObject({ state: 'active', incarnation: 2 });
    // A sandbox that was suspended by a server that died before it recorded that.
    await plain.suspend(id);
    await expect
      .poll(async () => await test.control.get(test.principal, id))
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

  it('wakes once for many callers, also for those with a guest from before', async () => {
    const id = await create();
    const { guest } = await fixture.control.enter(me(), id);
    await fixture.control.pause(me(), id, { as: 'hibernated' });
    let woken = 0;
    const { ensure } = fixture.backend;
    fixture.backend.ensure = (...given) => {
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

  it('wakes for a visitor with a token, and not for one without', async () => {
    const id = await create({ ports: [3000] });
    const [port] = (await fixture.control.get(me(), id)).ports;
    await fixture.control.pause(me(), id, {});
    await expect(fixture.control.preview(id, 3000, 'wrong')).rejects.toMatchObject({ code: 'not_found' });
    expect((await fixture.control.get(me(), id)).state).toBe('paused');
    const guest = await fixture.control.preview(id, 3000, port!.token);
    await expect(guest.ports.connect(3000)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await fixture.control.get(me(), id)).state).toBe('active');
  });

  it('counts in the quota by its level', async () => {
    const GiB = 1024 ** 3;
    await fixture.opened.projects.setQuota(
      me().project,
      QuotaSchema.parse({ cpus: 2, memoryBytes: 2 * GiB }),
    );
    const limits = { cpus: 2, memoryBytes: 2 * GiB };
    const id = await create({ limits });
    await fixture.control.pause(me(), id, { as: 'frozen' });
    await expect(create({ limits })).rejects.toMatchObject({ code: 'resource_exhausted' });
    await fixture.control.pause(me(), id, { as: 'hibernated' });
    const other = await create({ limits });
    await expect(fixture.control.resume(me(), id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(await fixture.control.get(me(), id)).toMatchObject({ state: 'paused', pausedAs: 'hibernated' });
    await fixture.control.stop(me(), other);
    expect((await fixture.control.resume(me(), id)).state).toBe('active');
  });

  it.each(['frozen', 'hibernated', 'archived'] as const)(
    'that is %s can be stopped, started, rolled back, forked and removed',
    async (as) => {
      const id = await create();
      await fixture.control.turn(me(), id, {});
      await fixture.control.pause(me(), id, { as });
      expect(await fixture.control.stop(me(), id)).toMatchObject({ state: 'stopped', pausedAs: null });
      await fixture.control.start(me(), id);
      await fixture.control.pause(me(), id, { as });
      expect((await fixture.control.rollback(me(), id, { to: 1 })).sandbox.state).toBe('active');
      await fixture.control.pause(me(), id, { as });
      expect(
        (await fixture.control.fork(me(), id, { count: 2 })).sandboxes.map(({ state }) => state),
      ).toEqual(['active', 'active']);
      await fixture.control.pause(me(), id, { as });
      await fixture.control.remove(me(), id);
      expect((await fixture.backend.observe(id)).phase).toBe('absent');
      expect(fixture.place.archived().filter((name) => name.startsWith(id))).toEqual([]);
    },
  );

  it('becomes failed if the backend reports that', async () => {
    const id = await create();
    await fixture.control.pause(me(), id, { as: 'frozen' });
    fixture.memory.crash(id, 'oom_killed');
    await expect
      .poll(async () => await fixture.control.get(me(), id))
      .toMatchObject({ state: 'failed', reason: 'oom_killed', pausedAs: null });
    await expect(fixture.control.resume(me(), id)).rejects.toMatchObject({ code: 'failed_precondition' });
    await expect(fixture.control.pause(me(), id, {})).rejects.toMatchObject({ code: 'failed_precondition' });
  });
});

describe('a pause', () => {
  it('waits for commands, and new calls wait for it', async () => {
    const id = await create();
    const { guest } = await fixture.control.enter(me(), id);
    const long = await run(guest, 'long', 'sleep', '1000');
    const paused = fixture.control.pause(me(), id, { as: 'frozen', waitMs: 60_000 });
    const call = echo(id);
    expect((await fixture.control.get(me(), id)).state).toBe('active');
    // Asks the backend itself: a call through the control plane would wait.
    await (await fixture.memory.connect(id)).signal('long', 'SIGKILL');
    for await (const _ of long.output);
    await long[Symbol.asyncDispose]();
    expect((await paused).pausedAs).toBe('frozen');
    expect(await call).toBe('hi\n');
    expect((await fixture.control.get(me(), id)).state).toBe('active');
  });

  it('pauses commands that still run after the wait', async () => {
    const id = await create();
    const { guest } = await fixture.control.enter(me(), id);
    await using _ = await run(guest, 'long', 'sleep', '1000');
    expect((await fixture.control.pause(me(), id, { as: 'frozen', waitMs: 10 })).pausedAs).toBe('frozen');
    expect((await guest.commands()).map(({ id: command, end }) => ({ command, end }))).toEqual([
      { command: 'long', end: undefined },
    ]);
  });

  it('is refused where the level is not supported', async () => {
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
  it('leaves nothing on the machine, and its snapshots are fetched when they are needed', async () => {
    const id = await create();
    await writeText(fixture.opened, id, 'one');
    await fixture.control.turn(me(), id, {});
    await writeText(fixture.opened, id, 'two');
    const { id: shared } = await fixture.control.snapshot(me(), id, { name: 'shared' });
    const { sandbox: fork } = await fixture.control.create(me(), asked({ snapshot: shared }));
    await fixture.control.pause(me(), id, { as: 'archived' });
    // The base of another sandbox stays.
    expect((await fixture.backend.snapshots()).map((facts) => facts.id)).toEqual([shared]);
    expect(fixture.place.archived()).toHaveLength(2);
    expect((await fixture.control.getSnapshot(me(), 1, { sandbox: id })).archived).toBe(true);
    const exported = await fixture.control.exportSnapshot(me(), 1, { sandbox: id });
    expect(Buffer.concat(await Array.fromAsync(exported.data)).length).toBeGreaterThan(0);
    await expect(
      fixture.control.removeSnapshot(me(), (await fixture.control.get(me(), id)).base!),
    ).rejects.toMatchObject({
      code: 'failed_precondition',
    });

    await fixture.control.resume(me(), id);
    const read = () => readText(fixture.opened, id);
    expect(await read()).toBe('two');
    expect(fixture.place.archived()).toHaveLength(1);
    await fixture.control.rollback(me(), id, { to: 1 });
    expect(await read()).toBe('one');
    expect(fixture.place.archived()).toHaveLength(0);
    expect((await fixture.control.getSnapshot(me(), 1, { sandbox: id })).archived).toBe(false);
    await fixture.control.remove(me(), fork.id);
  });

  it('leaves nothing more behind, however often it is archived', async () => {
    const id = await create();
    for (let round = 0; round < 4; round++) {
      await fixture.control.pause(me(), id, { as: 'archived' });
      await fixture.control.resume(me(), id);
    }
    expect((await fixture.control.snapshots(me(), { limit: 100 })).snapshots.length).toBeLessThanOrEqual(2);
    await fixture.control.remove(me(), id);
    expect([await fixture.backend.snapshots(), fixture.place.archived()]).toEqual([[], []]);
  });

  it('is removed together with its objects in the store', async () => {
    const id = await create();
    await fixture.control.turn(me(), id, {});
    await fixture.control.pause(me(), id, { as: 'archived' });
    await fixture.control.remove(me(), id);
    expect(fixture.place.archived()).toHaveLength(0);
    expect(await fixture.backend.snapshots()).toEqual([]);
  });
});

describe('a timeout', () => {
  const poke = async () => void (await fixture.control.update(me(), await create(), { labels: {} }));

  it.each([
    ['pause', 'hibernated'],
    ['archive', 'archived'],
  ] as const)('that asks to %s leaves it %s, and waking starts a new one', async (onTimeout, pausedAs) => {
    const id = await create({ timeoutMs: 60_000, onTimeout });
    fixture.opened.clock.nowMs += 60_001;
    await poke();
    await expect
      .poll(async () => await fixture.control.get(me(), id))
      .toMatchObject({ state: 'paused', pausedAs, expiresAtMs: null });
    expect(await fixture.control.resume(me(), id)).toMatchObject({
      expiresAtMs: fixture.opened.clock.nowMs + 60_000,
    });
  });

  it('can be changed while it runs', async () => {
    const id = await create({ timeoutMs: 60_000 });
    await fixture.control.update(me(), id, { timeoutMs: 600_000, onTimeout: 'destroy' });
    fixture.opened.clock.nowMs += 61_000;
    await poke();
    expect(await fixture.control.get(me(), id)).toMatchObject({ state: 'active', onTimeout: 'destroy' });
    fixture.opened.clock.nowMs += 600_000;
    await poke();
    await expect.poll(async () => (await fixture.backend.observe(id)).phase).toBe('absent');
  });
});
