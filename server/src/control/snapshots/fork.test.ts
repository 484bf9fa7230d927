import { ListSnapshotsSchema, QuotaSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
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

describe('fork', () => {
  it('makes children with names, labels and tokens of their own that go their own way', async () => {
    const id = await box('one', { name: 'parent', labels: { team: 'a' }, ports: [3000] });
    const { snapshot, sandboxes } = await control.fork(me(), 'parent', {
      count: 3,
      namePrefix: 'try',
      labels: { kind: 'child' },
    });
    expect(snapshot).toMatchObject({ sandbox: id, cause: 'fork' });
    expect(sandboxes.map(({ name, state, base }) => ({ name, state, base }))).toEqual(
      [1, 2, 3].map((index) => ({ name: `try-${index}`, state: 'active', base: snapshot.id })),
    );
    expect(sandboxes[0]!.labels).toEqual({ team: 'a', kind: 'child' });
    expect(new Set([control.get(me(), id), ...sandboxes].map(({ ports }) => ports[0]!.token)).size).toBe(4);
    await write('try-1', 'mine');
    expect(await Promise.all(['parent', 'try-1', 'try-2'].map(read))).toEqual(['one', 'mine', 'one']);
    const tree = control.tree(me(), 'try-2');
    expect(tree.start).toEqual([]);
    expect(tree.nodes).toHaveLength(1);
    expect(new Set(tree.nodes[0]!.sandboxes.map(({ name }) => name))).toEqual(
      new Set(['parent', 'try-1', 'try-2', 'try-3']),
    );
    // The capture goes with the last of them, when the parent has gone on.
    await control.turn(me(), id, {});
    await control.turn(me(), 'try-1', {});
    for (const name of ['try-2', 'try-3']) await control.remove(me(), name);
    expect(listed().map(({ cause }) => cause)).toContain('fork');
    await control.remove(me(), 'try-1');
    expect(listed().map(({ cause }) => cause)).toEqual(['turn']);
  });

  it('of a stopped sandbox gives stopped ones, and can begin at any snapshot', async () => {
    const id = await box('one');
    await control.turn(me(), id, {});
    await write(id, 'two');
    await control.stop(me(), id);
    const { sandboxes } = await control.fork(me(), id, {});
    expect(sandboxes[0]).toMatchObject({ state: 'stopped', incarnation: 1 });
    await control.start(me(), sandboxes[0]!.id);
    expect(await read(sandboxes[0]!.id)).toBe('two');
    await control.start(me(), id);
    const { sandboxes: earlier, snapshot } = await control.fork(me(), id, { from: 1 });
    expect(snapshot.turn).toBe(1);
    expect(await read(earlier[0]!.id)).toBe('one');
  });

  it('is done once for an idempotency key', async () => {
    const id = await box();
    const call = () => control.fork(me(), id, { count: 2 }, { idempotencyKey: 'k' });
    const [one, other] = await Promise.all([call(), call()]);
    const ids = ({ sandboxes }: typeof one) => sandboxes.map((child) => child.id);
    expect(ids(other)).toEqual(ids(one));
    expect(ids(await call())).toEqual(ids(one));
    await expect(control.fork(me(), id, { count: 3 }, { idempotencyKey: 'k' })).rejects.toMatchObject({
      code: 'conflict',
    });
    await control.remove(me(), ids(one)[0]!);
    await expect(call()).rejects.toMatchObject({ code: 'not_found' });
    expect(await backend.list()).toHaveLength(2);
  });

  it('makes all or none', async () => {
    const id = await box('one', { limits: { cpus: 1 } });
    opened.projects.setQuota(me().project, QuotaSchema.parse({ cpus: 3 }));
    const { base } = control.get(me(), id);
    await expect(control.fork(me(), id, { count: 3 })).rejects.toMatchObject({ code: 'resource_exhausted' });
    await control.create(me(), asked({ name: 'taken-2', limits: { cpus: 1 } }));
    await expect(control.fork(me(), id, { count: 2, namePrefix: 'taken' })).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    opened.projects.setQuota(me().project, QuotaSchema.parse({}));
    await expect(control.fork(me(), id, { count: 2, namePrefix: 'taken' })).rejects.toMatchObject({
      code: 'already_exists',
    });
    await expect(control.fork(me(), id, { namePrefix: 'Not A Name' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(control.fork(me(), id, { memory: true })).rejects.toMatchObject({ code: 'unsupported' });
    expect(control.get(me(), id).base).toBe(base);
    expect(listed()).toEqual([]);
    expect(await backend.snapshots()).toEqual([]);
    expect(await backend.list()).toHaveLength(2);
  });
});

describe('operations that do not go together', () => {
  it('are refused with a conflict, and the first one wins', async () => {
    const id = await box('one');
    await control.turn(me(), id, {});
    const codes = async (...operations: Promise<unknown>[]) =>
      (await Promise.allSettled(operations)).map((result) =>
        result.status === 'fulfilled' ? 'done' : (result.reason as { code: string }).code,
      );
    expect(await codes(control.rollback(me(), id, { to: 1 }), control.rollback(me(), id, { to: 1 }))).toEqual(
      ['done', 'conflict'],
    );
    expect(await codes(control.fork(me(), id, {}), control.rollback(me(), id, { to: 1 }))).toEqual([
      'done',
      'conflict',
    ]);
    expect(await codes(control.rollback(me(), id, { to: 1 }), control.fork(me(), id, {}))).toEqual([
      'done',
      'conflict',
    ]);
    expect(await codes(control.snapshot(me(), id, {}), control.remove(me(), id))).toEqual([
      'done',
      'conflict',
    ]);
    expect(
      await codes(control.snapshot(me(), id, {}), control.turn(me(), id, {}), control.fork(me(), id, {})),
    ).toEqual(['done', 'done', 'done']);
    expect(await codes(control.pause(me(), id, {}), control.rollback(me(), id, { to: 1 }))).toEqual([
      'done',
      'conflict',
    ]);
    expect(
      await codes(control.remove(me(), id), control.snapshot(me(), id, {}), control.remove(me(), id)),
    ).toEqual(['done', 'conflict', 'done']);
  });
});
