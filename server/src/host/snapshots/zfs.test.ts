import { mkdtemp, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { snapshotterSuite } from '../../../../test/conformance/snapshotter-suite.ts';
import { MIB } from '../../../../test/conformance/snapshotter-world.ts';
import { startZfsPool, unmountZfs, type ZfsPool, zfs } from '../../../../test/conformance/snapshotter-zfs.ts';
import { openSnapshotter } from './open.ts';
import type { Snapshotter } from './snapshotter.ts';
import { openZfs } from './zfs.ts';

let pool: ZfsPool | undefined;
const reason = await start();
if (reason) console.warn(`Skipping the tests of zfs: ${reason}`);

async function start(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'they need root';
  try {
    pool = await startZfsPool();
    return undefined;
  } catch (error) {
    return String(error);
  }
}

describe.skipIf(reason !== undefined)('zfs', () => {
  afterAll(() => pool?.stop(), 60_000);

  snapshotterSuite('zfs', {
    open: (options) => openZfs({ ...options, dataset: pool!.name }),
    reboot: (dir) => unmountZfs(join(dir, 'pool')),
    openSmall: async (dir) => {
      await zfs('create', '-o', `quota=${200 * MIB}`, `${pool!.name}/small`);
      const trees = await openZfs({ dir, dataset: `${pool!.name}/small` });
      return { trees, end: async () => void (await zfs('destroy', `${pool!.name}/small`)) };
    },
    slow: true,
    noXattrs: 'zfs-fuse has none',
  });

  describe('a folder on ZFS', () => {
    it('is used without being asked for, found again, and left as it was', async () => {
      const dir = join(pool!.path, 'data');
      const before = await datasets(pool!.name);
      await zfs('create', `${pool!.name}/theirs`);
      const trees = await openSnapshotter({ dir });
      expect(trees.name).toBe('zfs');
      await writeFile(join(await trees.prepare('a'), 'file'), 'x');
      await trees.commit('c', 'a');
      const again = await openSnapshotter({ dir });
      expect((await again.list()).map(({ name }) => name)).toEqual(['a', 'c']);
      await again.destroy();
      await expect(stat(dir)).rejects.toThrow(/ENOENT/);
      expect(await datasets(pool!.name)).toEqual([...before, `${pool!.name}/theirs`].sort());
      await zfs('destroy', `${pool!.name}/theirs`);
    }, 60_000);

    it('is refused if the dataset belongs to another directory', async () => {
      const dir = await mkdtemp(join(tmpdir(), 'cay-zfs-'));
      const trees = await openZfs({ dir, dataset: pool!.name });
      const base = await readlink(join(dir, 'pool.zfs'));
      try {
        await zfs('set', 'cay:dir=/somewhere/else', base);
        await expect(openZfs({ dir })).rejects.toMatchObject({ code: 'failed_precondition' });
      } finally {
        await trees.destroy();
        await rm(dir, { recursive: true, force: true });
      }
    }, 60_000);

    it('is refused where there is none and no dataset is named', async () => {
      const dir = await mkdtemp(join(tmpdir(), 'cay-zfs-'));
      await expect(openSnapshotter({ dir, name: 'zfs' })).rejects.toMatchObject({
        code: 'failed_precondition',
      });
      await rm(dir, { recursive: true, force: true });
    });
  });

  describe('datasets', () => {
    let dir: string;
    let trees: Snapshotter;
    beforeEach(async () => {
      dir = await mkdtemp(join(tmpdir(), 'cay-zfs-'));
      trees = await openSnapshotter({ dir, name: `zfs:${pool!.name}` });
    }, 30_000);
    afterEach(async () => {
      await trees.destroy();
      await rm(dir, { recursive: true, force: true });
    }, 60_000);

    it('stay for their snapshots only, and go with the last of them', async () => {
      const base = await readlink(join(dir, 'pool.zfs'));
      await trees.prepare('a');
      await trees.commit('one', 'a');
      await trees.commit('two', 'a');
      await trees.remove('a');
      expect(await datasets(base)).toEqual([base, `${base}/t-a.0`]);
      await trees.prepare('a');
      await trees.remove('two');
      await trees.remove('one');
      expect(await datasets(base)).toEqual([base, `${base}/t-a.1`]);
    }, 60_000);

    it('of views that a killed server left are removed, and those of others are not', async () => {
      const base = await readlink(join(dir, 'pool.zfs'));
      await trees.prepare('a');
      await trees.commit('c', 'a');
      await trees.committedPath('c');
      await zfs('create', '-o', 'canmount=noauto', `${base}/foreign`);
      expect(await datasets(base)).toContain(`${base}/v-c`);
      trees = await openSnapshotter({ dir });
      expect(await datasets(base)).toEqual([base, `${base}/foreign`, `${base}/t-a.0`]);
      await zfs('destroy', `${base}/foreign`);
    }, 60_000);
  });

  /** A dataset and those below it. Cases that ran before may have left others in the pool. */
  async function datasets(of: string): Promise<string[]> {
    return (await zfs('list', '-H', '-o', 'name', '-r', of)).trimEnd().split('\n').sort();
  }
});
