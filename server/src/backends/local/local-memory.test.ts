/** Processes on disk: what becomes of images, and of those that cannot be revived. */
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { GUEST_FILE } from '../../host/instances/kept-guest.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { localWorld, type LocalParts, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();

/** As a server on another machine, or with another build of the runtime, would be. */
function elsewhere(parts: LocalParts): LocalParts {
  const runtimes = new Map(parts.resources.runtimes);
  const runsc = runtimes.get('runsc')!;
  runtimes.set('runsc', {
    ...runsc,
    checkpoints: { ...runsc.checkpoints!, compatibility: async () => 'another build' },
  });
  return { ...parts, resources: { ...parts.resources, runtimes } };
}

describe.skipIf(reason !== undefined)(`processes on disk${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let world: LocalWorld;
  afterEach(async () => {
    armFaultPoints();
    await world.destroy();
  });

  const count = 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done';

  it('a hibernated sandbox has an image of its own, which goes when it wakes', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const first = await world.open();
    const id = await world.box(first);
    const guest = await first.connect(id);
    await (
      await guest.exec({ id: 'count', shell: count, env: {}, workdir: '/', user: 'user' })
    )[Symbol.asyncDispose]();
    const memory = { image: expect.any(String), compatibility: expect.stringContaining('runsc') };
    await first.hibernate(id);
    expect(await world.record(id)).toMatchObject({ phase: 'hibernated', memory });
    expect(await world.instances()).toEqual([]);
    expect(await world.images()).toHaveLength(1);
    await first.close();
    const second = await world.open();
    expect(await second.observe(id)).toMatchObject({ phase: 'hibernated' });
    expect(await second.ensure(id, world.spec)).toMatchObject({ phase: 'ready', incarnation: 2 });
    expect((await (await second.connect(id)).commands()).map((command) => command.id)).toEqual(['count']);
    const before = Number(await world.run(second, id, 'cat /tmp/count'));
    expect(Number(await world.run(second, id, 'sleep 0.5; cat /tmp/count'))).toBeGreaterThan(before);
    await second.close();
    expect(await world.images()).toEqual([]);
  }, 30_000);

  it('a sandbox that dies while its processes are being kept has failed, and starts again', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const id = await world.box(backend);
    armFaultPoints({
      'local.snapshot.still': async () => {
        await world.kill(id);
        // By then there is no process to resume.
        await sleep(200);
      },
    });
    await expect(backend.snapshot(id, newId('snap'), { memory: true })).rejects.toThrow();
    armFaultPoints();
    for (let tries = 0; (await backend.observe(id)).phase !== 'failed' && tries < 200; tries++)
      await sleep(50);
    expect(await backend.observe(id)).toMatchObject({ phase: 'failed' });
    expect(await backend.ensure(id, world.spec)).toMatchObject({ phase: 'ready' });
  }, 60_000);

  it('processes that an older build of the guest started go on under a newer one', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const program = join(world.dir, 'program');
    const built = await readFile(guestBinary());
    const use = (parts: LocalParts): LocalParts => ({
      ...parts,
      resources: { ...parts.resources, guestBinary: program },
    });
    const build = async (content: Buffer) => {
      await writeFile(`${program}.new`, content, { mode: 0o755 });
      await rename(`${program}.new`, program);
    };
    await build(Buffer.concat([built, Buffer.from('older')]));
    const first = await world.open({}, use);
    const [asleep, awake] = [await world.box(first), await world.box(first)];
    await world.run(first, asleep, `(${count}) >/dev/null 2>&1 &`);
    const [snapshot, later] = [newId('snap'), newId('snap')];
    await first.snapshot(asleep, snapshot, { memory: true });
    await first.hibernate(asleep);
    await first.close();

    // No page of it is where it was.
    await build(Buffer.alloc(built.length));
    const second = await world.open({}, use);
    expect(await second.ensure(asleep, world.spec)).toMatchObject({ phase: 'ready', incarnation: 2 });
    const before = Number(await world.run(second, asleep, 'cat /tmp/count'));
    expect(Number(await world.run(second, asleep, 'sleep 0.5; cat /tmp/count'))).toBeGreaterThan(before);
    // It ran all the time, and is captured by the newer server.
    await second.snapshot(awake, later, { memory: true });
    for (const from of [snapshot, later]) {
      const child = newId('sbx');
      await second.clone(child, world.spec, from, { memory: true, start: true });
      expect(await world.run(second, child, 'tail -c 5 /run/cay-guest')).toBe('older');
    }
    await build(Buffer.concat([built, Buffer.from('newer')]));
    expect(await world.run(second, await world.box(second), 'tail -c 5 /run/cay-guest')).toBe('newer');
  }, 60_000);

  it('clones share the image of their snapshot, which stays as long as one of them sleeps', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const id = await world.box(backend);
    const snapshot = newId('snap');
    expect(await backend.snapshot(id, snapshot, { memory: true })).toMatchObject({
      memory: true,
      runtime: 'runsc',
    });
    const [one, two] = [newId('sbx'), newId('sbx')];
    for (const child of [one, two]) {
      expect(await backend.clone(child, world.spec, snapshot, { memory: true })).toMatchObject({
        phase: 'hibernated',
      });
    }
    await backend.ensure(one, world.spec);
    await backend.stop(two, { graceMs: 0 });
    expect(await backend.observe(two)).toMatchObject({ phase: 'stopped' });
    expect(await world.images()).toHaveLength(1);
    await Promise.all([id, one, two].map((each) => backend.remove(each)));
    await backend.removeSnapshot(snapshot);
    expect(await world.images()).toEqual([]);
  }, 30_000);

  it('a snapshot of what is hibernated outlives the image of the sandbox', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const id = await world.box(backend);
    await world.note(backend, id, 'then');
    await backend.hibernate(id);
    const snapshot = newId('snap');
    expect(await backend.snapshot(id, snapshot, { memory: true })).toMatchObject({ memory: true });
    await backend.remove(id);
    expect(await world.images()).toHaveLength(1);
    const child = newId('sbx');
    await backend.clone(child, world.spec, snapshot, { memory: true });
    await backend.ensure(child, world.spec);
    expect(await world.readNote(backend, child)).toBe('then');
  }, 30_000);

  it('processes of another build are refused, and the files can still be had', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const first = await world.open();
    const [id, asleep] = [await world.box(first), await world.box(first)];
    await world.note(first, id, 'then');
    const snapshot = newId('snap');
    await first.snapshot(id, snapshot, { memory: true });
    await first.hibernate(asleep);
    await first.close();

    const second = await world.open({}, elsewhere);
    const mismatch = {
      code: 'failed_precondition',
      details: { reason: 'checkpoint_mismatch' },
      hint: expect.any(String),
    };
    const child = newId('sbx');
    await expect(second.clone(child, world.spec, snapshot, { memory: true })).rejects.toMatchObject(mismatch);
    expect((await second.observe(child)).phase).toBe('absent');
    await expect(second.rollback(id, snapshot, { memory: true })).rejects.toMatchObject(mismatch);
    expect(await second.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    await expect(second.ensure(asleep, world.spec)).rejects.toMatchObject(mismatch);
    expect((await second.observe(asleep)).phase).toBe('hibernated');
    await second.clone(child, world.spec, snapshot);
    await second.ensure(child, world.spec);
    expect(await world.readNote(second, child)).toBe('then');
    await second.stop(asleep);
    expect((await second.ensure(asleep, world.spec)).phase).toBe('ready');
  }, 30_000);

  it('processes that another build of the runtime has started are not captured until they were started again', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const first = await world.open();
    const id = await world.box(first);
    await first.close();
    const second = await world.open({}, elsewhere);
    const refused = { code: 'failed_precondition', details: { reason: 'checkpoint_mismatch' } };
    await expect(second.snapshot(id, newId('snap'), { memory: true })).rejects.toMatchObject(refused);
    await expect(second.hibernate(id)).rejects.toMatchObject(refused);
    expect(await world.run(second, id, 'echo on')).toBe('on');
    expect(await second.snapshot(id, newId('snap'))).toMatchObject({ memory: false });
    await second.stop(id, { graceMs: 0 });
    await second.ensure(id, world.spec);
    expect(await second.snapshot(id, newId('snap'), { memory: true })).toMatchObject({ memory: true });
  }, 60_000);

  it('a sandbox whose image is damaged stays hibernated, and starts from its files once it is stopped', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const id = await world.box(backend);
    await world.note(backend, id, 'kept');
    await backend.hibernate(id);
    const dir = join(world.dir, 'images', (await world.images())[0]!);
    // The guest's program is one file with that of every other sandbox.
    for (const file of (await readdir(dir)).filter((name) => name !== GUEST_FILE))
      await writeFile(join(dir, file), 'no memory at all');
    await expect(backend.ensure(id, world.spec)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await backend.observe(id)).phase).toBe('hibernated');
    expect(await world.instances()).toEqual([]);
    expect(await world.images()).toHaveLength(1);
    await backend.stop(id);
    await backend.ensure(id, world.spec);
    expect(await world.readNote(backend, id)).toBe('kept');
    expect(await world.images()).toEqual([]);
  }, 60_000);

  it('a clone that could not be woken has the files of its snapshot, whatever ran of it for a moment', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const id = await world.box(backend);
    const guest = await backend.connect(id);
    await (
      await guest.exec({ id: 'count', shell: count, env: {}, workdir: '/', user: 'user' })
    )[Symbol.asyncDispose]();
    const snapshot = newId('snap');
    await backend.snapshot(id, snapshot, { memory: true });
    const child = newId('sbx');
    await backend.clone(child, world.spec, snapshot, { memory: true });
    // It counts on for a while before it is taken away again.
    armFaultPoints({
      'local.wake.revived': () => sleep(300).then(() => Promise.reject(new Error('on purpose'))),
    });
    await expect(backend.ensure(child, world.spec)).rejects.toThrow('on purpose');
    armFaultPoints();
    const kept = newId('snap');
    await backend.snapshot(child, kept);
    const changes = [];
    for await (const change of backend.changes(snapshot, kept)) changes.push(change);
    expect(changes).toEqual([]);
    await backend.ensure(child, world.spec);
    expect((await (await backend.connect(child)).commands()).map((command) => command.id)).toEqual(['count']);
    expect(await backend.sweep({ dryRun: true })).toEqual([]);
  }, 30_000);

  it('a machine that was restarted has its hibernated sandboxes, and the others have failed', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const first = await world.open();
    const [awake, torn, asleep] = [await world.box(first), await world.box(first), await world.box(first)];
    await world.note(first, asleep, 'kept');
    await first.hibernate(asleep);
    const { uid } = await first.observe(torn);
    await first.close();
    // A power loss takes what was not waited for.
    await writeFile(join(world.dir, 'instances', uid!, 'instance.json'), '');
    const second = await world.open({}, (parts) => ({
      ...parts,
      resources: { ...parts.resources, bootId: 'another boot' },
    }));
    for (const one of [awake, torn])
      expect(await second.observe(one)).toMatchObject({ phase: 'failed', reason: 'host_restarted' });
    expect(await second.observe(asleep)).toMatchObject({ phase: 'hibernated' });
    await second.ensure(asleep, world.spec);
    expect(await world.readNote(second, asleep)).toBe('kept');
  }, 30_000);

  it('where processes cannot be kept that is said, and nothing is made', async () => {
    world = await localWorld({ runtime: 'runc' });
    const backend = await world.open();
    const id = await world.box(backend);
    await expect(backend.hibernate(id)).rejects.toMatchObject({ code: 'unsupported' });
    await expect(backend.snapshot(id, newId('snap'), { memory: true })).rejects.toMatchObject({
      code: 'unsupported',
    });
    expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect(await world.images()).toEqual([]);
    expect(await backend.snapshots()).toEqual([]);
  });
});
