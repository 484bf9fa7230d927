import { QuotaSchema } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { useControl } from '../testing/control-fixture.ts';
import { asked } from '../testing/test-control.ts';

const fixture = useControl();
const { me, createWithText, listed, read, write } = fixture;

describe('fork', () => {
  it('makes independent children with their own names, labels and tokens', async () => {
    const id = await createWithText('one', { name: 'parent', labels: { team: 'a' }, ports: [3000] });
    const { snapshot, sandboxes } = await fixture.control.fork(me(), 'parent', {
      count: 3,
      namePrefix: 'try',
      labels: { kind: 'child' },
    });
    expect(snapshot).toMatchObject({ sandbox: id, cause: 'fork' });
    expect(sandboxes.map(({ name, state, base }) => ({ name, state, base }))).toEqual(
      [1, 2, 3].map((index) => ({ name: `try-${index}`, state: 'active', base: snapshot.id })),
    );
    expect(sandboxes[0]!.labels).toEqual({ team: 'a', kind: 'child' });
    expect(
      new Set([await fixture.control.get(me(), id), ...sandboxes].map(({ ports }) => ports[0]!.token)).size,
    ).toBe(4);
    await write('try-1', 'mine');
    expect(await Promise.all(['parent', 'try-1', 'try-2'].map(read))).toEqual(['one', 'mine', 'one']);
    const tree = await fixture.control.tree(me(), 'try-2');
    expect(tree.start).toEqual([]);
    expect(tree.nodes).toHaveLength(1);
    expect(new Set(tree.nodes[0]!.sandboxes.map(({ name }) => name))).toEqual(
      new Set(['parent', 'try-1', 'try-2', 'try-3']),
    );
    // The capture is removed with the last of them, when the parent has a later base.
    await fixture.control.turn(me(), id, {});
    await fixture.control.turn(me(), 'try-1', {});
    for (const name of ['try-2', 'try-3']) await fixture.control.remove(me(), name);
    expect((await listed()).map(({ cause }) => cause)).toContain('fork');
    await fixture.control.remove(me(), 'try-1');
    expect((await listed()).map(({ cause }) => cause)).toEqual(['turn']);
  });

  it('of a stopped sandbox makes stopped ones, and can start from any snapshot', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    await write(id, 'two');
    await fixture.control.stop(me(), id);
    const { sandboxes } = await fixture.control.fork(me(), id, {});
    expect(sandboxes[0]).toMatchObject({ state: 'stopped', incarnation: 1 });
    await fixture.control.start(me(), sandboxes[0]!.id);
    expect(await read(sandboxes[0]!.id)).toBe('two');
    await fixture.control.start(me(), id);
    const { sandboxes: earlier, snapshot } = await fixture.control.fork(me(), id, { from: 1 });
    expect(snapshot.turn).toBe(1);
    expect(await read(earlier[0]!.id)).toBe('one');
  });

  it('is done once for an idempotency key', async () => {
    const id = await createWithText('one');
    const call = () => fixture.control.fork(me(), id, { count: 2 }, { idempotencyKey: 'k' });
    const [one, other] = await Promise.all([call(), call()]);
    const ids = ({ sandboxes }: typeof one) => sandboxes.map((child) => child.id);
    expect(ids(other)).toEqual(ids(one));
    expect(ids(await call())).toEqual(ids(one));
    await expect(fixture.control.fork(me(), id, { count: 3 }, { idempotencyKey: 'k' })).rejects.toMatchObject(
      {
        code: 'conflict',
      },
    );
    await fixture.control.remove(me(), ids(one)[0]!);
    await expect(call()).rejects.toMatchObject({ code: 'not_found' });
    expect(await fixture.backend.list()).toHaveLength(2);
  });

  it('makes all or none', async () => {
    const id = await createWithText('one', { limits: { cpus: 1 } });
    await fixture.opened.projects.setQuota(me().project, QuotaSchema.parse({ cpus: 3 }));
    const { base } = await fixture.control.get(me(), id);
    await expect(fixture.control.fork(me(), id, { count: 3 })).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    await fixture.control.create(me(), asked({ name: 'taken-2', limits: { cpus: 1 } }));
    await expect(fixture.control.fork(me(), id, { count: 2, namePrefix: 'taken' })).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    await fixture.opened.projects.setQuota(me().project, QuotaSchema.parse({}));
    await expect(fixture.control.fork(me(), id, { count: 2, namePrefix: 'taken' })).rejects.toMatchObject({
      code: 'already_exists',
    });
    await expect(fixture.control.fork(me(), id, { namePrefix: 'Not A Name' })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    await expect(fixture.control.fork(me(), id, { memory: true })).rejects.toMatchObject({
      code: 'unsupported',
    });
    expect((await fixture.control.get(me(), id)).base).toBe(base);
    expect(await listed()).toEqual([]);
    expect(await fixture.backend.snapshots()).toEqual([]);
    expect(await fixture.backend.list()).toHaveLength(2);
  });
});

describe('operations on one sandbox at the same time', () => {
  const outcomes = async (...operations: Promise<unknown>[]) =>
    (await Promise.allSettled(operations)).map((result) =>
      result.status === 'fulfilled' ? 'done' : (result.reason as { code: string }).code,
    );

  it('are rejected with `conflict` if they exclude each other, and the first one wins', async () => {
    const id = await createWithText('one');
    await fixture.control.turn(me(), id, {});
    const rollback = () => fixture.control.rollback(me(), id, { to: 1 });
    const fork = () => fixture.control.fork(me(), id, {});
    expect(await outcomes(rollback(), rollback())).toEqual(['done', 'conflict']);
    expect(await outcomes(fork(), rollback())).toEqual(['done', 'conflict']);
    expect(await outcomes(rollback(), fork())).toEqual(['done', 'conflict']);
    expect(
      await outcomes(fixture.control.snapshot(me(), id, {}), fixture.control.turn(me(), id, {}), fork()),
    ).toEqual(['done', 'done', 'done']);
    expect(await outcomes(fixture.control.pause(me(), id, {}), rollback())).toEqual(['done', 'conflict']);
    const remove = () => fixture.control.remove(me(), id);
    expect(await outcomes(remove(), fixture.control.snapshot(me(), id, {}), remove())).toEqual([
      'done',
      'conflict',
      'done',
    ]);
  });

  it.each(['snapshot', 'turn', 'fork', 'pause', 'rollback'] as const)(
    'a removal waits for a %s',
    async (operation) => {
      const id = await createWithText('one');
      await fixture.control.turn(me(), id, {});
      const under = { snapshot: {}, turn: {}, fork: {}, pause: {}, rollback: { to: 1 } }[operation];
      const begun = fixture.control[operation](me(), id, under as { to: number });
      expect(await outcomes(begun, fixture.control.remove(me(), id))).toEqual(['done', 'done']);
      await expect(fixture.control.get(me(), id)).rejects.toThrow('does not exist');
      expect((await fixture.backend.observe(id)).phase).toBe('absent');
    },
  );

  it('a removal does not wait for the commands that a turn waits for', async () => {
    const id = await createWithText('one');
    const { guest } = await fixture.control.enter(me(), id);
    const command = { id: 'long', argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' };
    await using _ = await guest.exec(command);
    const turn = fixture.control.turn(me(), id, { waitMs: 60_000 });
    expect(await outcomes(turn, fixture.control.remove(me(), id))).toEqual(['conflict', 'done']);
  });
});
