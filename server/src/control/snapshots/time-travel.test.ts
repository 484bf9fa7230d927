import { describe, expect, it } from 'vitest';
import type { Guest } from '../../guest/guest.ts';
import { useControl } from '../testing/control-fixture.ts';
import { asked, installation, memoryBackend } from '../testing/test-control.ts';

const fixture = useControl();
const { me, createWithText, listed, read, write } = fixture;

/** A command that runs until it is killed. */
function sleep(guest: Guest, id: string) {
  return guest.exec({ id, argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' });
}

describe('snapshots', () => {
  it('have a name, labels, and the previous one as their parent', async () => {
    const id = await createWithText('one');
    const first = await fixture.control.snapshot(me(), id, { name: 'works', labels: { a: '1' } });
    expect(first).toMatchObject({
      sandbox: id,
      name: 'works',
      labels: { a: '1' },
      parent: null,
      turn: null,
      cause: 'request',
      memory: false,
      quiet: true,
    });
    fixture.opened.clock.nowMs += 1;
    const second = await fixture.control.snapshot(me(), id, {});
    expect(second).toMatchObject({ parent: first.id, name: null });
    expect(await fixture.control.get(me(), id)).toMatchObject({ base: second.id, turn: 0 });
    await expect(fixture.control.snapshot(me(), id, { name: 'works' })).rejects.toMatchObject({
      code: 'already_exists',
    });
    expect((await listed()).map((one) => one.id)).toEqual([second.id, first.id]);
    expect(await listed({ label: 'a=1' })).toEqual([first]);
    expect(await fixture.control.getSnapshot(me(), 'works', { sandbox: id })).toEqual(first);
    expect(await fixture.control.getSnapshot(me(), first.id)).toEqual(first);
    const page = await fixture.control.snapshots(me(), { limit: 1 });
    expect(await fixture.control.snapshots(me(), { limit: 1, cursor: page.nextCursor! })).toEqual({
      snapshots: [first],
      nextCursor: null,
    });
    expect((await fixture.backend.snapshots()).map((facts) => facts.id).toSorted()).toEqual(
      [first.id, second.id].toSorted(),
    );
  });

  it('are refused where the backend cannot take any, and nothing is recorded', async () => {
    const other = installation();
    const test = await other.open({ ...memoryBackend(), ability: () => undefined });
    const { sandbox } = await test.control.create(test.principal, asked());
    const unsupported = { code: 'unsupported' };
    await expect(test.control.turn(test.principal, sandbox.id, {})).rejects.toMatchObject(unsupported);
    await expect(test.control.fork(test.principal, sandbox.id, {})).rejects.toMatchObject(unsupported);
    await expect(test.control.compare(test.principal, sandbox.id, { from: 'now' })).rejects.toMatchObject(
      unsupported,
    );
    await expect(test.control.pause(test.principal, sandbox.id, {})).rejects.toMatchObject(unsupported);
    await expect(test.control.pause(test.principal, sandbox.id, { as: 'archived' })).rejects.toMatchObject(
      unsupported,
    );
    expect(test.sql('SELECT id FROM snapshots UNION SELECT id FROM forks')).toEqual([]);
    expect((await test.control.get(test.principal, sandbox.id)).state).toBe('active');
    expect(test.errors).toEqual([]);
    await test.control.close();
    other.remove();
  });

  it('do not exist for another project', async () => {
    const id = await createWithText('one');
    const { id: snapshot } = await fixture.control.snapshot(me(), id, {});
    const stranger = { ...me(), project: (await fixture.opened.projects.create('other')).id };
    await expect(fixture.control.getSnapshot(stranger, snapshot)).rejects.toThrow('does not exist');
    await expect(fixture.control.snapshots(stranger, { sandbox: id, limit: 10 })).rejects.toThrow(
      'does not exist',
    );
    await expect(fixture.control.removeSnapshot(stranger, snapshot)).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(fixture.control.create(stranger, asked({ snapshot }))).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(fixture.control.exportSnapshot(stranger, snapshot)).rejects.toMatchObject({
      code: 'not_found',
    });
  });

  it('make their children those of their parent when they are removed', async () => {
    const id = await createWithText('one');
    const first = await fixture.control.snapshot(me(), id, {});
    const second = await fixture.control.snapshot(me(), id, {});
    const third = await fixture.control.snapshot(me(), id, {});
    await fixture.control.removeSnapshot(me(), second.id);
    expect((await fixture.control.getSnapshot(me(), third.id)).parent).toBe(first.id);
    await fixture.control.removeSnapshot(me(), third.id);
    expect((await fixture.control.get(me(), id)).base).toBe(first.id);
    expect((await fixture.backend.snapshots()).map((facts) => facts.id)).toEqual([first.id]);
  });

  it('are not removed while a sandbox or a template needs them', async () => {
    const id = await createWithText('one');
    const { id: snapshot } = await fixture.control.snapshot(me(), id, {});
    const { sandbox } = await fixture.control.create(me(), asked({ snapshot }));
    await expect(fixture.control.removeSnapshot(me(), snapshot)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { sandboxes: [sandbox.id] },
    });
    expect((await fixture.control.getSnapshot(me(), snapshot)).id).toBe(snapshot);
    await fixture.control.remove(me(), sandbox.id);
    await fixture.control.saveTemplate(me(), 'ready', { snapshot });
    await expect(fixture.control.removeSnapshot(me(), snapshot)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { template: 'ready' },
    });
    await fixture.control.removeTemplate(me(), 'ready');
    await fixture.control.removeSnapshot(me(), snapshot);
    expect(await listed()).toEqual([]);
  });

  it('stay when their sandbox is removed, if a caller asked for them', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    const asked1 = await fixture.control.snapshot(me(), id, {});
    const named = await fixture.control.turn(me(), id, { name: 'good' });
    await fixture.control.rollback(me(), id, { to: asked1.id });
    await fixture.control.remove(me(), id);
    expect((await listed()).map((one) => one.id).toSorted()).toEqual([asked1.id, named.id].toSorted());
    expect(await listed({ sandbox: id })).toHaveLength(2);
    const { sandbox } = await fixture.control.create(me(), asked({ snapshot: asked1.id }));
    expect(await read(sandbox.id)).toBe('one');
  });

  it('can be exported and imported', async () => {
    const id = await createWithText('carried');
    await fixture.control.snapshot(me(), id, { name: 'out' });
    const { data } = await fixture.control.exportSnapshot(me(), 'out', { sandbox: id });
    const archive = Buffer.concat(await Array.fromAsync(data));
    await fixture.control.remove(me(), id);
    const taken = await fixture.control.importSnapshot(
      me(),
      (async function* () {
        yield archive;
      })(),
      { name: 'in' },
    );
    expect(taken).toMatchObject({ name: 'in', cause: 'import', sandbox: id, parent: null });
    const { sandbox } = await fixture.control.create(me(), asked({ snapshot: taken.id }));
    expect(await read(sandbox.id)).toBe('carried');
    const damaged = archive.subarray(0, archive.length - 700);
    await expect(
      fixture.control.importSnapshot(
        me(),
        (async function* () {
          yield damaged;
        })(),
        {},
      ),
    ).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(await fixture.backend.snapshots()).toHaveLength(2);
  });
});

describe('turns', () => {
  it('are numbered upwards, also after removals and rollbacks', async () => {
    const id = await createWithText('one');
    expect((await fixture.control.turn(me(), id, {})).turn).toBe(1);
    expect((await fixture.control.turn(me(), id, {})).turn).toBe(2);
    await fixture.control.rollback(me(), id, { to: 1 });
    expect(await fixture.control.get(me(), id)).toMatchObject({ turn: 2 });
    await fixture.control.removeSnapshot(me(), 2, { sandbox: id });
    expect((await fixture.control.turn(me(), id, {})).turn).toBe(3);
    expect((await fixture.control.getSnapshot(me(), '3', { sandbox: id })).parent).toBe(
      (await fixture.control.getSnapshot(me(), 1, { sandbox: id })).id,
    );
  });

  it('wait for commands that a client waits for, and report if one still runs', async () => {
    const id = await createWithText('one');
    const { guest } = await fixture.control.enter(me(), id);
    const long = await sleep(guest, 'long');
    expect((await fixture.control.turn(me(), id, { waitMs: 20 })).quiet).toBe(false);
    const taking = fixture.control.turn(me(), id, { waitMs: 60_000 });
    await guest.signal('long', 'SIGKILL');
    for await (const _ of long.output);
    expect((await taking).quiet).toBe(true);
    await long[Symbol.asyncDispose]();
    // A detached command has no client that waits for it.
    await (await sleep(guest, 'left'))[Symbol.asyncDispose]();
    expect((await fixture.control.turn(me(), id, { waitMs: 60_000 })).quiet).toBe(true);
  });

  it('are pruned by retention, but never one with a name, the newest, or one that is a base', async () => {
    const id = await createWithText('one', { retention: { keepLast: 2, maxAgeMs: null } });
    await fixture.control.turn(me(), id, {});
    await fixture.control.turn(me(), id, { name: 'good' });
    await fixture.control.turn(me(), id, {});
    const { sandbox: child } = await fixture.control.create(
      me(),
      asked({ snapshot: (await fixture.control.getSnapshot(me(), 3, { sandbox: id })).id }),
    );
    for (let i = 0; i < 4; i++) await fixture.control.turn(me(), id, {});
    await expect
      .poll(async () =>
        (await listed({ sandbox: id }))
          .flatMap(({ turn }) => turn ?? [])
          .toSorted((one, other) => one - other),
      )
      .toEqual([2, 3, 6, 7]);
    await fixture.control.remove(me(), child.id);
    await fixture.control.update(me(), id, { retention: { keepLast: null, maxAgeMs: 1000 } });
    fixture.opened.clock.nowMs += 10_000;
    await fixture.control.turn(me(), id, {});
    await expect
      .poll(async () =>
        (await listed({ sandbox: id }))
          .flatMap(({ turn }) => turn ?? [])
          .toSorted((one, other) => one - other),
      )
      .toEqual([2, 8]);
  });
});

describe('rollback', () => {
  it('goes back and forth, and loses nothing', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    await write(id, 'two');
    const { sandbox, kept } = await fixture.control.rollback(me(), id, { to: 1 });
    expect(sandbox).toMatchObject({
      state: 'active',
      incarnation: 2,
      base: (await fixture.control.getSnapshot(me(), 1, { sandbox: id })).id,
    });
    expect(kept).toMatchObject({ cause: 'rollback', parent: sandbox.base });
    expect(await read(id)).toBe('one');
    await fixture.control.rollback(me(), id, { to: kept!.id });
    expect(await read(id)).toBe('two');
    await expect(fixture.control.rollback(me(), id, { to: 'nothing' })).rejects.toMatchObject({
      code: 'not_found',
    });
  });

  it('leaves a stopped sandbox stopped', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    await write(id, 'two');
    await fixture.control.stop(me(), id);
    expect((await fixture.control.rollback(me(), id, { to: 1 })).sandbox.state).toBe('stopped');
    await fixture.control.start(me(), id);
    expect(await read(id)).toBe('one');
  });

  it('leaves everything as it was when it fails', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    await write(id, 'two');
    const before = await fixture.control.get(me(), id);
    await expect(fixture.control.rollback(me(), id, { to: 1, memory: true })).rejects.toMatchObject({
      code: 'unsupported',
    });
    expect({ ...(await fixture.control.get(me(), id)), usedAtMs: null }).toEqual({
      ...before,
      usedAtMs: null,
    });
    expect(await read(id)).toBe('two');
    expect(await listed()).toHaveLength(1);
  });
});

describe('a template made of a snapshot', () => {
  it('is what sandboxes of its project start from', async () => {
    const id = await createWithText('prepared', { env: { A: '1' } });
    await fixture.control.snapshot(me(), id, { name: 'ready' });
    const saved = await fixture.control.saveTemplate(me(), 'mine', { snapshot: 'ready', sandbox: id });
    expect(await fixture.control.templates(me())).toEqual([
      { name: 'base', snapshot: null, memory: false, network: null, createdAtMs: null },
      saved,
    ]);
    const { sandbox } = await fixture.control.create(me(), asked({ template: 'mine', env: { B: '2' } }));
    expect(await read(sandbox.id)).toBe('prepared');
    expect((await fixture.opened.sandboxes.get(sandbox.id))!.spec.env).toEqual({ A: '1', B: '2' });
    await expect(
      fixture.control.saveTemplate(me(), 'mine', { snapshot: 'ready', sandbox: id }),
    ).rejects.toMatchObject({ code: 'already_exists' });
    await fixture.control.saveTemplate(me(), 'mine', { snapshot: 'ready', sandbox: id, replace: true });
    await expect(
      fixture.control.saveTemplate(me(), 'base', { snapshot: saved.snapshot! }),
    ).rejects.toMatchObject({
      code: 'already_exists',
    });
    const stranger = { ...me(), project: (await fixture.opened.projects.create('other')).id };
    await expect(fixture.control.create(stranger, asked({ template: 'mine' }))).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(
      fixture.control.create(me(), asked({ template: 'mine', memory: true })),
    ).rejects.toMatchObject({
      code: 'failed_precondition',
    });
  });
});

describe('a snapshot that is gone from its backend', () => {
  it('is not listed any more, nor are templates made of it', async () => {
    const id = await createWithText('one');
    const { id: snapshot } = await fixture.control.snapshot(me(), id, {});
    const next = await fixture.control.snapshot(me(), id, {});
    await fixture.control.saveTemplate(me(), 'mine', { snapshot });
    await fixture.opened.kill();
    await fixture.backend.removeSnapshot(snapshot);
    await fixture.reopen();
    expect(await listed()).toEqual([{ ...next, parent: null }]);
    expect((await fixture.control.templates(me())).map(({ name }) => name)).toEqual(['base']);
    expect((await fixture.opened.events.list({})).map(({ type }) => type)).toContain('snapshot.lost');
  });
});

describe('compare', () => {
  it('lists what differs between two moments, and leaves no snapshot', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    await write(id, 'three');
    const comparison = await fixture.control.compare(me(), id, { from: 1, to: 'now' });
    expect(comparison).toMatchObject({ from: { turn: 1 }, to: null });
    const changes = await Array.fromAsync(comparison.changes);
    expect(changes.filter(({ type }) => type === 'file')).toMatchObject([
      { path: '/home/user/file', change: 'modified', content: true },
    ]);
    const text = async (files: typeof comparison.before) =>
      Buffer.concat(await Array.fromAsync(files.read('/home/user/file'))).toString();
    expect([await text(comparison.before), await text(comparison.after)]).toEqual(['one', 'three']);
    expect(await listed()).toHaveLength(1);
    await comparison.release();
    await comparison.release();
    expect(await fixture.backend.snapshots()).toHaveLength(1);
  });
});
