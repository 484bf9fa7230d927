import { execFile } from 'node:child_process';
import { appendFile, mkdir, mkdtemp, open, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { snapshotterSuite } from '../../../../test/conformance/snapshotter-suite.ts';
import { type BtrfsOptions, type BtrfsSnapshotter, openBtrfs } from './btrfs.ts';
import { listMounts, loopsOf } from './mounts.ts';

const exec = promisify(execFile);
const MIB = 1024 ** 2;
const SIZE = { poolBytes: 1024 * MIB, tendEveryMs: 0 };

const reason = await whyNot();
if (reason) console.warn(`Skipping the tests of btrfs: ${reason}`);

async function whyNot(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'they need root';
  const dir = await mkdtemp(join(tmpdir(), 'cay-btrfs-probe-'));
  try {
    await (await openBtrfs({ dir: join(dir, 'probe'), ...SIZE })).destroy();
    return undefined;
  } catch (error) {
    return String(error);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

describe.skipIf(reason !== undefined)('btrfs', () => {
  snapshotterSuite('btrfs', {
    open: (options) => openBtrfs({ ...options, ...SIZE }),
    reboot: async (dir) => void (await exec('umount', [join(dir, 'pool')])),
    openSmall: async (dir) => ({
      trees: await openBtrfs({ dir, poolBytes: 300 * MIB, maxPoolBytes: 300 * MIB, tendEveryMs: 0 }),
      end: async () => {},
    }),
  });

  describe('a pool', () => {
    let dir: string;
    let last: BtrfsSnapshotter | undefined;

    beforeEach(async () => {
      dir = await mkdtemp(join(tmpdir(), 'cay-btrfs-'));
    });

    afterEach(async () => {
      await last?.destroy();
      last = undefined;
      await rm(dir, { recursive: true, force: true });
    });

    async function start(options: Partial<BtrfsOptions> = {}): Promise<BtrfsSnapshotter> {
      last = await openBtrfs({ dir, ...SIZE, ...options });
      return last;
    }

    it('is nosuid, nodev and closed to other users, also if it was mounted without these options', async () => {
      const pool = join(dir, 'pool');
      const options = async () => (await listMounts()).find(({ path }) => path === pool)?.options;
      await (await start()).prepare('a');
      expect(await options()).toEqual(expect.arrayContaining(['nosuid', 'nodev', 'noatime']));
      await last!.close();
      await exec('mount', ['-o', 'remount,bind,suid,dev,noatime', pool]);
      await exec('chmod', ['711', pool]);
      expect(await options()).not.toContain('nosuid');
      await start();
      expect(await options()).toEqual(expect.arrayContaining(['rw', 'nosuid', 'nodev', 'noatime']));
      expect((await stat(pool)).mode & 0o777).toBe(0o700);
    });

    it('uses only the disk space of its content, and frees the space of removed files', async () => {
      const trees = await start();
      const used = async (): Promise<number> => (await stat(join(dir, 'pool.btrfs'))).blocks * 512;
      expect(await used()).toBeLessThan(64 * MIB);
      await fill(join(await trees.prepare('a'), 'big'), 200 * MIB);
      expect(await used()).toBeGreaterThan(190 * MIB);
      await trees.remove('a');
      await cleaned();
      await expect.poll(used, { timeout: 60_000, interval: 500 }).toBeLessThan(100 * MIB);
    }, 120_000);

    it('is unmounted by close when no active tree is left, and stays otherwise', async () => {
      const trees = await start();
      await trees.prepare('a');
      await trees.close();
      expect(await loopsOf(join(dir, 'pool.btrfs'))).toHaveLength(1);
      const again = await start();
      await again.commit('c', 'a');
      await again.remove('a');
      await again.close();
      expect(await loopsOf(join(dir, 'pool.btrfs'))).toHaveLength(0);
      expect((await (await start()).list()).map(({ name }) => name)).toEqual(['c']);
    });

    it('is mounted by the loop device that another left behind', async () => {
      const trees = await start();
      await trees.prepare('a');
      await exec('umount', [join(dir, 'pool')]);
      await expect.poll(() => loopsOf(join(dir, 'pool.btrfs'))).toEqual([]);
      await exec('losetup', ['-f', join(dir, 'pool.btrfs')]);
      const again = await start();
      expect(await loopsOf(join(dir, 'pool.btrfs'))).toHaveLength(1);
      expect((await again.list()).map(({ name }) => name)).toEqual(['a']);
    });

    it('is made whole or not at all, whatever step a crash comes at', async () => {
      for (const at of ['pool:create', 'pool:mkfs', 'pool:rename', 'pool:mount']) {
        await new Promise<void>((resolve, reject) => {
          const onStep = (step: string): Promise<void> | undefined => {
            if (step !== at) return undefined;
            resolve();
            return new Promise(() => {});
          };
          openBtrfs({ dir, ...SIZE, onStep }).then(() => reject(new Error(`No step "${at}"`)), reject);
        });
        const trees = await start();
        await writeFile(join(await trees.prepare('a'), 'file'), 'x');
        await trees.destroy();
        last = undefined;
        await mkdir(dir, { recursive: true });
      }
    }, 60_000);

    it('grows when it is nearly full, up to its limit', async () => {
      const trees = await start({ poolBytes: 300 * MIB, maxPoolBytes: 900 * MIB });
      const path = await trees.prepare('a');
      await fill(join(path, 'one'), 200 * MIB);
      await fill(join(path, 'two'), 60 * MIB).catch(() => {});
      await trees.tend();
      expect((await trees.space()).totalBytes).toBe(600 * MIB);
      await fill(join(path, 'three'), 250 * MIB);
      await fill(join(path, 'four'), 60 * MIB).catch(() => {});
      await trees.tend();
      expect((await trees.space()).totalBytes).toBe(900 * MIB);
    }, 60_000);

    it('ends growing that a crash interrupted', async () => {
      await (await start({ poolBytes: 300 * MIB })).prepare('a');
      await truncate(join(dir, 'pool.btrfs'), 600 * MIB);
      const trees = await start();
      expect((await trees.space()).totalBytes).toBe(600 * MIB);
      await fill(join(await trees.path('a'), 'big'), 400 * MIB);
    }, 60_000);

    it('sets a quota that a crash kept from being set', async () => {
      const trees = await start();
      await trees.prepare('a', { quotaBytes: 2 * MIB });
      await exec('btrfs', ['qgroup', 'limit', 'none', await trees.path('a')]);
      const again = await start();
      await expect(fill(join(await again.path('a'), 'big'), 5 * MIB)).rejects.toThrow(/EDQUOT|-122/);
    });

    it('leaves no quota group of a removed tree', async () => {
      const trees = await start();
      await trees.prepare('a', { quotaBytes: 2 * MIB });
      await trees.remove('a');
      await cleaned();
      const kept = await trees.prepare('b', { quotaBytes: 2 * MIB });
      const id = Number((await exec('btrfs', ['inspect-internal', 'rootid', kept])).stdout);
      await trees.tend();
      expect(await groups()).toEqual(['0/5', `0/${id}`]);
    }, 60_000);

    async function groups(): Promise<string[] | null> {
      return (await exec('btrfs', ['qgroup', 'show', join(dir, 'pool')])).stdout.match(/^0\/\d+/gm);
    }

    /** Waits for the kernel to have taken deleted subvolumes apart. */
    async function cleaned(): Promise<void> {
      await exec('btrfs', ['filesystem', 'sync', join(dir, 'pool')]);
      await exec('btrfs', ['subvolume', 'sync', join(dir, 'pool')]);
    }

    it('removes a tree in which subvolumes were made, and only that', async () => {
      const trees = await start();
      const path = await trees.prepare('a');
      await trees.prepare('b');
      await exec('btrfs', ['subvolume', 'create', join(path, 'inner')]);
      await exec('btrfs', ['subvolume', 'create', join(path, 'inner', 'deeper')]);
      // A name that pretends to be another line of the list.
      const { stdout: id } = await exec('btrfs', ['inspect-internal', 'rootid', await trees.path('b')]);
      await exec('btrfs', [
        'subvolume',
        'create',
        join(path, `x\nID ${id.trim()} gen 1 top level 5 path trees`),
      ]);
      await trees.remove('a');
      expect((await trees.list()).map(({ name }) => name)).toEqual(['b']);
      await writeFile(join(await trees.path('b'), 'file'), 'still here');
    });

    it('removes a tree that is full and has a subvolume in it', async () => {
      const trees = await start();
      const path = await trees.prepare('a', { quotaBytes: 2 * MIB });
      await exec('btrfs', ['subvolume', 'create', join(path, 'inner')]);
      await expect(fill(join(path, 'big'), 5 * MIB)).rejects.toThrow(/EDQUOT|-122/);
      await trees.remove('a');
      expect(await trees.list()).toEqual([]);
    });

    it('cannot be changed in a committed tree, not even by root', async () => {
      const trees = await start();
      await writeFile(join(await trees.prepare('a'), 'file'), 'x');
      await trees.commit('c', 'a');
      await expect(appendFile(join(dir, 'pool', 'trees', 'c', 'file'), 'y')).rejects.toThrow(/EROFS/);
    });

    it('rejects a size that the disk does not have', async () => {
      await expect(start({ poolBytes: 2 ** 50 })).rejects.toMatchObject({ code: 'failed_precondition' });
    });
  });

  describe('a folder on btrfs', () => {
    it('is used directly, without a pool, and is left as it was', async () => {
      const dir = await mkdtemp(join(tmpdir(), 'cay-btrfs-direct-'));
      const outer = await openBtrfs({ dir, ...SIZE });
      try {
        const home = join(await outer.prepare('home'), 'data');
        const trees = await openBtrfs({ dir: home, enableQuota: true, tendEveryMs: 0 });
        await writeFile(join(await trees.prepare('a', { quotaBytes: 4 * MIB }), 'file'), 'x');
        await trees.commit('c', 'a');
        const again = await openBtrfs({ dir: home, tendEveryMs: 0 });
        expect((await again.list()).map(({ name }) => name)).toEqual(['a', 'c']);
        const b = await again.prepare('b', { parent: 'c', quotaBytes: 2 * MIB });
        await expect(fill(join(b, 'big'), 5 * MIB)).rejects.toThrow(/EDQUOT|-122/);
        expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain(home);
        await again.destroy();
        await expect(stat(home)).rejects.toThrow(/ENOENT/);
      } finally {
        await outer.destroy();
        await rm(dir, { recursive: true, force: true });
      }
    });
  });
});

async function fill(path: string, bytes: number): Promise<void> {
  const file = await open(path, 'w');
  try {
    const chunk = Buffer.alloc(MIB, 'content');
    for (let done = 0; done < bytes; done += chunk.length) await file.write(chunk);
    await file.sync();
  } finally {
    await file.close();
  }
}
