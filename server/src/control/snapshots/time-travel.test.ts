import { ListSnapshotsSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Guest } from '../../guest/guest.ts';
import type { Control } from '../open-control.ts';
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
let backend: MemoryBackend;
let opened: TestControl;
let control: Control;
beforeEach(async () => {
  place = installation();
  backend = memoryBackend();
  opened = await place.open(backend);
  control = opened.control;
});
afterEach(async () => {
  await control.close();
  expect(opened.errors).toEqual([]);
  place.remove();
});

const me = () => opened.principal;
const listed = (query = {}) => control.snapshots(me(), ListSnapshotsSchema.parse(query)).snapshots;

const write = (ref: string, text: string) => writeText(opened, ref, text);
const read = (ref: string) => readText(opened, ref);

async function box(text = 'one', input: Parameters<typeof asked>[0] = {}): Promise<SandboxId> {
  const { sandbox } = await control.create(me(), asked(input));
  await write(sandbox.id, text);
  return sandbox.id;
}

/** A command that runs until it is killed. */
function sleep(guest: Guest, id: string) {
  return guest.exec({ id, argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' });
}

describe('snapshots', () => {
  it('have a name of their own, labels, and the one before as their parent', async () => {
    const id = await box();
    const first = await control.snapshot(me(), id, { name: 'works', labels: { a: '1' } });
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
    opened.clock.nowMs += 1;
    const second = await control.snapshot(me(), id, {});
    expect(second).toMatchObject({ parent: first.id, name: null });
    expect(control.get(me(), id)).toMatchObject({ base: second.id, turn: 0 });
    await expect(control.snapshot(me(), id, { name: 'works' })).rejects.toMatchObject({
      code: 'already_exists',
    });
    expect(listed().map((one) => one.id)).toEqual([second.id, first.id]);
    expect(listed({ label: 'a=1' })).toEqual([first]);
    expect(control.getSnapshot(me(), 'works', { sandbox: id })).toEqual(first);
    expect(control.getSnapshot(me(), first.id)).toEqual(first);
    const page = control.snapshots(me(), { limit: 1 });
    expect(control.snapshots(me(), { limit: 1, cursor: page.nextCursor! })).toEqual({
      snapshots: [first],
      nextCursor: null,
    });
    expect((await backend.snapshots()).map((facts) => facts.id).toSorted()).toEqual(
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
    expect(test.database.all('SELECT id FROM snapshots UNION SELECT id FROM forks')).toEqual([]);
    expect(test.control.get(test.principal, sandbox.id).state).toBe('active');
    expect(test.errors).toEqual([]);
    await test.control.close();
    other.remove();
  });

  it('do not exist for another project', async () => {
    const id = await box();
    const { id: snapshot } = await control.snapshot(me(), id, {});
    const stranger = { ...me(), project: opened.projects.create('other').id };
    expect(() => control.getSnapshot(stranger, snapshot)).toThrow('does not exist');
    expect(() => control.snapshots(stranger, { sandbox: id, limit: 10 })).toThrow('does not exist');
    await expect(control.removeSnapshot(stranger, snapshot)).rejects.toMatchObject({ code: 'not_found' });
    await expect(control.create(stranger, asked({ snapshot }))).rejects.toMatchObject({ code: 'not_found' });
    await expect(control.exportSnapshot(stranger, snapshot)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('leave their children to their parent when they are removed', async () => {
    const id = await box();
    const first = await control.snapshot(me(), id, {});
    const second = await control.snapshot(me(), id, {});
    const third = await control.snapshot(me(), id, {});
    await control.removeSnapshot(me(), second.id);
    expect(control.getSnapshot(me(), third.id).parent).toBe(first.id);
    await control.removeSnapshot(me(), third.id);
    expect(control.get(me(), id).base).toBe(first.id);
    expect((await backend.snapshots()).map((facts) => facts.id)).toEqual([first.id]);
  });

  it('are not removed while a sandbox stands on them or a template is made of them', async () => {
    const id = await box();
    const { id: snapshot } = await control.snapshot(me(), id, {});
    const { sandbox } = await control.create(me(), asked({ snapshot }));
    await expect(control.removeSnapshot(me(), snapshot)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { sandboxes: [sandbox.id] },
    });
    expect(control.getSnapshot(me(), snapshot).id).toBe(snapshot);
    await control.remove(me(), sandbox.id);
    await control.saveTemplate(me(), 'ready', { snapshot });
    await expect(control.removeSnapshot(me(), snapshot)).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { template: 'ready' },
    });
    await control.removeTemplate(me(), 'ready');
    await control.removeSnapshot(me(), snapshot);
    expect(listed()).toEqual([]);
  });

  it('stay when their sandbox goes, if somebody asked for them', async () => {
    const id = await box();
    await control.turn(me(), id, {});
    const asked1 = await control.snapshot(me(), id, {});
    const named = await control.turn(me(), id, { name: 'good' });
    await control.rollback(me(), id, { to: asked1.id });
    await control.remove(me(), id);
    expect(
      listed()
        .map((one) => one.id)
        .toSorted(),
    ).toEqual([asked1.id, named.id].toSorted());
    expect(listed({ sandbox: id })).toHaveLength(2);
    const { sandbox } = await control.create(me(), asked({ snapshot: asked1.id }));
    expect(await read(sandbox.id)).toBe('one');
  });

  it('travel as archives', async () => {
    const id = await box('carried');
    await control.snapshot(me(), id, { name: 'out' });
    const { data } = await control.exportSnapshot(me(), 'out', { sandbox: id });
    const archive = Buffer.concat(await Array.fromAsync(data));
    await control.remove(me(), id);
    const taken = await control.importSnapshot(
      me(),
      (async function* () {
        yield archive;
      })(),
      { name: 'in' },
    );
    expect(taken).toMatchObject({ name: 'in', cause: 'import', sandbox: id, parent: null });
    const { sandbox } = await control.create(me(), asked({ snapshot: taken.id }));
    expect(await read(sandbox.id)).toBe('carried');
    const damaged = archive.subarray(0, archive.length - 700);
    await expect(
      control.importSnapshot(
        me(),
        (async function* () {
          yield damaged;
        })(),
        {},
      ),
    ).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(await backend.snapshots()).toHaveLength(2);
  });
});

describe('turns', () => {
  it('are numbered upwards, whatever is removed or rolled back', async () => {
    const id = await box();
    expect((await control.turn(me(), id, {})).turn).toBe(1);
    expect((await control.turn(me(), id, {})).turn).toBe(2);
    await control.rollback(me(), id, { to: 1 });
    expect(control.get(me(), id)).toMatchObject({ turn: 2 });
    await control.removeSnapshot(me(), 2, { sandbox: id });
    expect((await control.turn(me(), id, {})).turn).toBe(3);
    expect(control.getSnapshot(me(), '3', { sandbox: id }).parent).toBe(
      control.getSnapshot(me(), 1, { sandbox: id }).id,
    );
  });

  it('wait for commands that somebody waits for, and say if one went on', async () => {
    const id = await box();
    const { guest } = await control.enter(me(), id);
    const long = await sleep(guest, 'long');
    expect((await control.turn(me(), id, { waitMs: 20 })).quiet).toBe(false);
    const taking = control.turn(me(), id, { waitMs: 60_000 });
    await guest.signal('long', 'SIGKILL');
    for await (const _ of long.output);
    expect((await taking).quiet).toBe(true);
    await long[Symbol.asyncDispose]();
    // Left to itself it is nobody's tool call.
    await (await sleep(guest, 'left'))[Symbol.asyncDispose]();
    expect((await control.turn(me(), id, { waitMs: 60_000 })).quiet).toBe(true);
  });

  it('are pruned by retention, never those with a name, the newest, or what is stood on', async () => {
    const id = await box('one', { retention: { keepLast: 2, maxAgeMs: null } });
    await control.turn(me(), id, {});
    await control.turn(me(), id, { name: 'good' });
    await control.turn(me(), id, {});
    const { sandbox: child } = await control.create(
      me(),
      asked({ snapshot: control.getSnapshot(me(), 3, { sandbox: id }).id }),
    );
    for (let i = 0; i < 4; i++) await control.turn(me(), id, {});
    await expect
      .poll(() =>
        listed({ sandbox: id })
          .flatMap(({ turn }) => turn ?? [])
          .toSorted((one, other) => one - other),
      )
      .toEqual([2, 3, 6, 7]);
    await control.remove(me(), child.id);
    await control.update(me(), id, { retention: { keepLast: null, maxAgeMs: 1000 } });
    opened.clock.nowMs += 10_000;
    await control.turn(me(), id, {});
    await expect
      .poll(() =>
        listed({ sandbox: id })
          .flatMap(({ turn }) => turn ?? [])
          .toSorted((one, other) => one - other),
      )
      .toEqual([2, 8]);
  });
});

describe('rollback', () => {
  it('goes back and forth, and loses nothing', async () => {
    const id = await box('one');
    await control.turn(me(), id, {});
    await write(id, 'two');
    const { sandbox, kept } = await control.rollback(me(), id, { to: 1 });
    expect(sandbox).toMatchObject({
      state: 'active',
      incarnation: 2,
      base: control.getSnapshot(me(), 1, { sandbox: id }).id,
    });
    expect(kept).toMatchObject({ cause: 'rollback', parent: sandbox.base });
    expect(await read(id)).toBe('one');
    await control.rollback(me(), id, { to: kept!.id });
    expect(await read(id)).toBe('two');
    await expect(control.rollback(me(), id, { to: 'nothing' })).rejects.toMatchObject({ code: 'not_found' });
  });

  it('leaves a stopped sandbox stopped', async () => {
    const id = await box('one');
    await control.turn(me(), id, {});
    await write(id, 'two');
    await control.stop(me(), id);
    expect((await control.rollback(me(), id, { to: 1 })).sandbox.state).toBe('stopped');
    await control.start(me(), id);
    expect(await read(id)).toBe('one');
  });

  it('leaves everything as it was when it fails', async () => {
    const id = await box('one');
    await control.turn(me(), id, {});
    await write(id, 'two');
    const before = control.get(me(), id);
    await expect(control.rollback(me(), id, { to: 1, memory: true })).rejects.toMatchObject({
      code: 'unsupported',
    });
    expect({ ...control.get(me(), id), usedAtMs: null }).toEqual({ ...before, usedAtMs: null });
    expect(await read(id)).toBe('two');
    expect(listed()).toHaveLength(1);
  });
});

describe('a template made of a snapshot', () => {
  it('is what sandboxes of its project start from', async () => {
    const id = await box('prepared', { env: { A: '1' } });
    await control.snapshot(me(), id, { name: 'ready' });
    const saved = await control.saveTemplate(me(), 'mine', { snapshot: 'ready', sandbox: id });
    expect(await control.templates(me())).toEqual([
      { name: 'base', snapshot: null, memory: false, createdAtMs: null },
      saved,
    ]);
    const { sandbox } = await control.create(me(), asked({ template: 'mine', env: { B: '2' } }));
    expect(await read(sandbox.id)).toBe('prepared');
    expect(opened.sandboxes.get(sandbox.id)!.spec.env).toEqual({ A: '1', B: '2' });
    await expect(
      control.saveTemplate(me(), 'mine', { snapshot: 'ready', sandbox: id }),
    ).rejects.toMatchObject({ code: 'already_exists' });
    await control.saveTemplate(me(), 'mine', { snapshot: 'ready', sandbox: id, replace: true });
    await expect(control.saveTemplate(me(), 'base', { snapshot: saved.snapshot! })).rejects.toMatchObject({
      code: 'already_exists',
    });
    const stranger = { ...me(), project: opened.projects.create('other').id };
    await expect(control.create(stranger, asked({ template: 'mine' }))).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(control.create(me(), asked({ template: 'mine', memory: true }))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
  });
});

describe('a snapshot that its backend has lost', () => {
  it('is not listed any more, nor are templates made of it', async () => {
    const id = await box();
    const { id: snapshot } = await control.snapshot(me(), id, {});
    const next = await control.snapshot(me(), id, {});
    await control.saveTemplate(me(), 'mine', { snapshot });
    opened.kill();
    await backend.removeSnapshot(snapshot);
    opened = await place.open(backend);
    control = opened.control;
    expect(listed()).toEqual([{ ...next, parent: null }]);
    expect((await control.templates(me())).map(({ name }) => name)).toEqual(['base']);
    expect(opened.events.list({}).map(({ type }) => type)).toContain('snapshot.lost');
  });
});

describe('compare', () => {
  it('tells what differs between two moments, and keeps nothing', async () => {
    const id = await box('one');
    await control.turn(me(), id, {});
    await write(id, 'three');
    const comparison = await control.compare(me(), id, { from: 1, to: 'now' });
    expect(comparison).toMatchObject({ from: { turn: 1 }, to: null });
    const changes = await Array.fromAsync(comparison.changes);
    expect(changes.filter(({ type }) => type === 'file')).toMatchObject([
      { path: '/home/user/file', change: 'modified', content: true },
    ]);
    const text = async (files: typeof comparison.before) =>
      Buffer.concat(await Array.fromAsync(files.read('/home/user/file'))).toString();
    expect([await text(comparison.before), await text(comparison.after)]).toEqual(['one', 'three']);
    expect(listed()).toHaveLength(1);
    await comparison.release();
    await comparison.release();
    expect(await backend.snapshots()).toHaveLength(1);
  });
});
