import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryServer, type MemoryServer } from '../../test/support/memory-server.ts';
import { Sandbox, bytesOf } from './index.ts';

let server: MemoryServer;
beforeAll(async () => {
  server = await memoryServer();
});
afterAll(() => server[Symbol.asyncDispose]());

const PATH = '/home/user/plan';

describe('a sandbox that is taken back and forth', () => {
  it('keeps turns and snapshots, and goes back to each of them', async () => {
    await using sandbox = await Sandbox.create({}, server);
    await sandbox.files.write(PATH, 'one\n');
    const first = await sandbox.turn();
    await sandbox.files.write(PATH, 'two\n');
    const named = await sandbox.snapshot({ name: 'works', labels: { a: 'b' } });
    expect(await Array.fromAsync(sandbox.snapshots())).toEqual([named, first]);

    const { kept } = await sandbox.rollback(first.turn!);
    expect(await sandbox.files.readText(PATH)).toBe('one\n');
    expect(sandbox.info.base).toBe(first.id);
    await sandbox.rollback('works');
    expect(await sandbox.files.readText(PATH)).toBe('two\n');
    const { nodes } = await sandbox.tree();
    expect(nodes.map(({ snapshot }) => snapshot.id)).toEqual(
      expect.arrayContaining([first.id, named.id, kept!.id]),
    );
    await sandbox.removeSnapshot(kept!.id);
    await expect(sandbox.rollback(kept!.id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('lists snapshots over pages', async () => {
    await using sandbox = await Sandbox.create({}, server);
    for (let i = 0; i < 103; i++) await sandbox.turn({ waitMs: 0 });
    const turns = (await Array.fromAsync(sandbox.snapshots())).map(({ turn }) => turn);
    expect(turns).toEqual(Array.from({ length: 103 }, (_, index) => 103 - index));
  });

  it('tells what has changed as changes, counts, a patch and files', async () => {
    await using sandbox = await Sandbox.create({}, server);
    await sandbox.files.write(PATH, 'one\n');
    await sandbox.turn();
    await sandbox.files.write(PATH, 'two\n');
    await sandbox.files.write('/home/user/other', 'x');
    const paths = [PATH];
    expect(await Array.fromAsync(sandbox.diff(1, 'now', { paths }))).toMatchObject([
      { change: 'modified', path: PATH, content: true },
    ]);
    expect(await sandbox.diffStat(1)).toMatchObject({ insertions: 2, deletions: 1 });
    expect(await (await sandbox.patch(1, 'now', { paths })).text()).toContain('-one\n+two\n');
    const tar = Buffer.concat(await Array.fromAsync(bytesOf(await sandbox.export({ at: 1, paths }))));
    expect(tar.includes('one\n')).toBe(true);
    await expect(Array.fromAsync(sandbox.diff(7))).rejects.toMatchObject({ code: 'not_found' });
    await expect(sandbox.export({ paths: ['/nosuch'] })).rejects.toMatchObject({ code: 'not_found' });
  });

  it('forks into sandboxes of their own, once for one idempotency key', async () => {
    await using sandbox = await Sandbox.create({}, server);
    await sandbox.files.write(PATH, 'parent');
    const children = await sandbox.fork(2, { namePrefix: 'sdk-child', idempotencyKey: 'once' });
    expect(children.map(({ info }) => info.name)).toEqual(['sdk-child-1', 'sdk-child-2']);
    const again = await sandbox.fork(2, { namePrefix: 'sdk-child', idempotencyKey: 'once' });
    expect(again.map(({ id }) => id)).toEqual(children.map(({ id }) => id));
    await children[0]!.files.write(PATH, 'child');
    expect(await children[1]!.files.readText(PATH)).toBe('parent');
    await Promise.all(children.map((child) => child.kill()));
  });

  it('pauses and wakes, and a lease prevents a pause', async () => {
    await using sandbox = await Sandbox.create({}, server);
    expect(await sandbox.pause()).toMatchObject({ state: 'paused', pausedAs: 'frozen' });
    expect((await sandbox.resume()).state).toBe('active');
    await sandbox.pause({ as: 'archived' });
    expect((await sandbox.exec('echo awake')).stdout).toBe('awake\n');
    expect((await sandbox.lease(60_000)).leaseUntilMs).toBeGreaterThan(Date.now());
    expect((await sandbox.lease(0)).leaseUntilMs).toBeNull();
    await expect(sandbox.pause({ as: 'hibernated' })).rejects.toMatchObject({ code: 'unsupported' });
  });
});
