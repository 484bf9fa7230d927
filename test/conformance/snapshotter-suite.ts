/**
 * What every Snapshotter has to do, run against the real thing.
 *
 *     snapshotterSuite('btrfs', { open: ({ dir, onStep }) => openBtrfs({ dir, onStep }), … });
 */
import { execFile } from 'node:child_process';
import {
  chmod, chown, link, lstat, mkdir, mkdtemp, open, readFile, readdir, readlink, rename, rm, stat, symlink, truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { isCayError, type ErrorCode } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Snapshotter } from '../../server/src/host/snapshots/snapshotter.ts';

export interface SnapshotterHarness {
  open(options: {
    dir: string;
    /** Called before each step; never resolved, it stops the verb there as a crash would. */
    onStep?: (step: string) => Promise<void> | void;
  }): Promise<Snapshotter & { destroy(): Promise<void> }>;
  /** Takes the mounts away, as a restart of the machine does. */
  reboot(dir: string): Promise<void>;
}

type Trees = Awaited<ReturnType<SnapshotterHarness['open']>>;

const exec = promisify(execFile);
const MIB = 1024 ** 2;

export function snapshotterSuite(name: string, harness: SnapshotterHarness): void {
  describe(`snapshotter ${name}`, () => {
    let dir: string;
    let trees: Trees;

    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), `cay-snapshotter-${name}-`));
      trees = await harness.open({ dir });
      await fill(await trees.prepare('seed'));
      await trees.commit('base', 'seed');
    }, 60_000);

    afterEach(async () => {
      await clear(trees, ['seed', 'base']);
    }, 60_000);

    afterAll(async () => {
      await trees?.destroy();
      if (dir) await rm(dir, { recursive: true, force: true });
    }, 60_000);

    describe('prepare', () => {
      it('makes an empty directory without a parent', async () => {
        const path = await trees.prepare('a');
        expect(await readdir(path)).toEqual([]);
        expect((await stat(path)).mode & 0o7777).toBe(0o755);
      });

      it('makes a writable copy of its parent', async () => {
        const path = await trees.prepare('a', { parent: 'base' });
        expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
        await writeFile(join(path, 'file'), 'changed');
        expect(await readFile(join(path, 'file'), 'utf8')).toBe('changed');
      });

      it('is done already for the same key and parent, and keeps what was written', async () => {
        const path = await trees.prepare('a', { parent: 'base' });
        await writeFile(join(path, 'new'), 'mine');
        expect(await trees.prepare('a', { parent: 'base' })).toBe(path);
        expect(await readFile(join(path, 'new'), 'utf8')).toBe('mine');
      });

      it('rejects a key that has another parent', async () => {
        await trees.prepare('a', { parent: 'base' });
        await rejects(trees.prepare('a'), 'already_exists');
      });

      it('rejects the name of a committed tree as its key', async () => {
        await rejects(trees.prepare('base'), 'already_exists');
        await rejects(trees.prepare('base', { parent: 'base' }), 'already_exists');
      });

      it('rejects a parent that does not exist and leaves nothing', async () => {
        await rejects(trees.prepare('a', { parent: 'nobody' }), 'not_found');
        await rejects(trees.path('a'), 'not_found');
        expect(await names(trees)).toEqual(['base', 'seed']);
      });

      it('rejects an active tree as a parent', async () => {
        await rejects(trees.prepare('a', { parent: 'seed' }), 'not_found');
      });

      it('gives siblings nothing of one another', async () => {
        const a = await trees.prepare('a', { parent: 'base' });
        const b = await trees.prepare('b', { parent: 'base' });
        await writeFile(join(a, 'file'), 'of a');
        await rm(join(b, 'folder'), { recursive: true });
        expect(await readFile(join(b, 'file'), 'utf8')).toBe('content');
        expect(await readdir(join(a, 'folder'))).toEqual(['inner']);
        const c = await trees.prepare('c', { parent: 'base' });
        expect(await readFile(join(c, 'file'), 'utf8')).toBe('content');
        expect(await readdir(join(c, 'folder'))).toEqual(['inner']);
      });

      it('makes twenty at once', async () => {
        const keys = Array.from({ length: 20 }, (_, index) => `many-${index}`);
        const paths = await Promise.all(keys.map((key) => trees.prepare(key, { parent: 'base' })));
        expect(new Set(paths).size).toBe(20);
        for (const path of paths) expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
        expect((await names(trees)).length).toBe(22);
      }, 60_000);

      it('makes one tree when the same key is asked for many times at once', async () => {
        const paths = await Promise.all(Array.from({ length: 8 }, () => trees.prepare('a', { parent: 'base' })));
        expect(new Set(paths).size).toBe(1);
      });

      it('keeps a hundred trees apart', async () => {
        for (let index = 0; index < 100; index++) {
          const path = await trees.prepare(`t${index}`, { parent: 'base' });
          await writeFile(join(path, 'own'), String(index));
        }
        for (let index = 0; index < 100; index++) {
          expect(await readFile(join(await trees.path(`t${index}`), 'own'), 'utf8')).toBe(String(index));
        }
        expect((await trees.list()).filter(({ parent }) => parent === 'base')).toHaveLength(100);
      }, 120_000);
    });

    describe('names', () => {
      const hostile = ['', '.', '..', '/', 'a/b', '../a', 'a b', 'A', 'a.b', 'a\n', 'a\0', '-'.repeat(65), 'ä', 'a:b', 'a,b'];

      it.each(hostile)('rejects %j everywhere', async (bad) => {
        await rejects(trees.prepare(bad), 'invalid_argument');
        await rejects(trees.prepare('a', { parent: bad }), 'invalid_argument');
        await rejects(trees.commit(bad, 'seed'), 'invalid_argument');
        await rejects(trees.commit('c', bad), 'invalid_argument');
        await rejects(trees.path(bad), 'invalid_argument');
        await rejects(trees.remove(bad), 'invalid_argument');
        await rejects(trees.usage(bad), 'invalid_argument');
        await rejects(trees.setQuota(bad, null), 'invalid_argument');
        expect(await names(trees)).toEqual(['base', 'seed']);
      });

      it('takes 64 characters, and a leading dash', async () => {
        for (const key of ['x'.repeat(64), '-rf', '--help', '_']) {
          await writeFile(join(await trees.prepare(key, { parent: 'base' }), 'own'), key);
          await trees.commit(`c${key.slice(0, 60)}`, key);
          expect(await readFile(join(await trees.path(key), 'own'), 'utf8')).toBe(key);
          await trees.remove(`c${key.slice(0, 60)}`);
          await trees.remove(key);
        }
        expect(await names(trees)).toEqual(['base', 'seed']);
      });
    });

    describe('path', () => {
      it('is where prepare said', async () => {
        expect(await trees.path('seed')).toBe(await trees.prepare('seed'));
      });

      it('rejects a tree that is committed or absent', async () => {
        await rejects(trees.path('base'), 'not_found');
        await rejects(trees.path('nobody'), 'not_found');
      });
    });

    describe('commit', () => {
      it('keeps the tree as it was and leaves the key active', async () => {
        const a = await trees.prepare('a', { parent: 'base' });
        await writeFile(join(a, 'one'), '1');
        await trees.commit('c', 'a');
        await writeFile(join(a, 'one'), '2');
        await writeFile(join(a, 'later'), '');
        const copy = await trees.prepare('b', { parent: 'c' });
        expect(await readFile(join(copy, 'one'), 'utf8')).toBe('1');
        expect(await exists(join(copy, 'later'))).toBe(false);
        expect(await readFile(join(copy, 'file'), 'utf8')).toBe('content');
      });

      it('keeps what was removed, replaced and renamed', async () => {
        const a = await trees.prepare('a', { parent: 'base' });
        await rm(join(a, 'file'));
        await rm(join(a, 'folder'), { recursive: true });
        await mkdir(join(a, 'folder'));
        await writeFile(join(a, 'folder', 'other'), '');
        await rename(join(a, 'renamed'), join(a, 'new-name'));
        await trees.commit('c', 'a');
        const b = await trees.prepare('b', { parent: 'c' });
        expect(await exists(join(b, 'file'))).toBe(false);
        expect(await readdir(join(b, 'folder'))).toEqual(['other']);
        expect(await exists(join(b, 'renamed'))).toBe(false);
        expect(await readFile(join(b, 'new-name', 'deep'), 'utf8')).toBe('deep');
      });

      it('is done already for the same name and key, and keeps the first copy', async () => {
        const a = await trees.prepare('a');
        await trees.commit('c', 'a');
        await writeFile(join(a, 'later'), '');
        await trees.commit('c', 'a');
        expect(await readdir(await trees.prepare('b', { parent: 'c' }))).toEqual([]);
        await trees.remove('a');
        await trees.commit('c', 'a');
      });

      it('rejects a name that comes from another key or is active', async () => {
        await trees.prepare('a');
        await trees.commit('c', 'a');
        await rejects(trees.commit('c', 'seed'), 'already_exists');
        await rejects(trees.commit('a', 'seed'), 'already_exists');
        await rejects(trees.commit('a', 'a'), 'already_exists');
      });

      it('rejects a key that is committed or absent, and leaves nothing', async () => {
        await rejects(trees.commit('c', 'base'), 'not_found');
        await rejects(trees.commit('c', 'nobody'), 'not_found');
        expect(await names(trees)).toEqual(['base', 'seed']);
      });

      it('takes a tree in which files come and go', async () => {
        const a = await trees.prepare('a', { parent: 'base' });
        let done = false;
        const writer = (async () => {
          for (let round = 0; !done; round++) {
            const path = join(a, `churn-${round % 50}`);
            await writeFile(path, 'x'.repeat(1000));
            await rename(path, `${path}-moved`);
            if (round % 2 === 0) await rm(`${path}-moved`);
          }
        })();
        try {
          for (let round = 0; round < 5; round++) await trees.commit(`c${round}`, 'a');
        } finally {
          done = true;
          await writer;
        }
        for (let round = 0; round < 5; round++) {
          const copy = await trees.prepare(`b${round}`, { parent: `c${round}` });
          expect(await readFile(join(copy, 'file'), 'utf8')).toBe('content');
        }
      }, 60_000);

      it('keeps modes, owners, times and extended attributes', async () => {
        const b = await copyOf(trees, async (a) => {
          await writeFile(join(a, 'odd'), 'x');
          await chown(join(a, 'odd'), 1234, 4321);
          await chmod(join(a, 'odd'), 0o4751);
          await exec('touch', ['-d', '2001-02-03T04:05:06.123456789Z', join(a, 'odd')]);
          await exec('python3', ['-c', 'import os,sys; os.setxattr(sys.argv[1], "user.colour", b"blue")', join(a, 'odd')]);
        });
        const { mode, uid, gid, mtimeNs } = await stat(join(b, 'odd'), { bigint: true });
        expect([mode & 0o7777n, uid, gid]).toEqual([0o4751n, 1234n, 4321n]);
        expect(mtimeNs).toBe(981_173_106_123_456_789n);
        const read = 'import os,sys; sys.stdout.buffer.write(os.getxattr(sys.argv[1], "user.colour"))';
        expect((await exec('python3', ['-c', read, join(b, 'odd')])).stdout).toBe('blue');
      });

      it('keeps the mode and owner of the root itself', async () => {
        const b = await copyOf(trees, async (a) => {
          await chown(a, 12, 34);
          await chmod(a, 0o1770);
        });
        const { mode, uid, gid } = await stat(b);
        expect([mode & 0o7777, uid, gid]).toEqual([0o1770, 12, 34]);
      });

      it('keeps symbolic links as they are, also those that lead outside', async () => {
        const b = await copyOf(trees, async (a) => {
          await symlink('/etc/passwd', join(a, 'outside'));
          await symlink('nowhere', join(a, 'dangling'));
        });
        expect(await readlink(join(b, 'outside'))).toBe('/etc/passwd');
        expect(await readlink(join(b, 'dangling'))).toBe('nowhere');
      });

      it('keeps hard links together', async () => {
        const b = await copyOf(trees, async (a) => {
          await writeFile(join(a, 'one'), 'x');
          await link(join(a, 'one'), join(a, 'two'));
        });
        const [one, two] = [await stat(join(b, 'one')), await stat(join(b, 'two'))];
        expect(one.ino).toBe(two.ino);
        expect(one.nlink).toBe(2);
      });

      it('keeps holes as holes', async () => {
        const b = await copyOf(trees, async (a) => {
          await writeFile(join(a, 'sparse'), 'x');
          await truncate(join(a, 'sparse'), 500 * MIB);
        });
        const { size, blocks } = await stat(join(b, 'sparse'));
        expect(size).toBe(500 * MIB);
        expect(blocks * 512).toBeLessThan(MIB);
      });

      it('keeps named pipes and sockets of the filesystem', async () => {
        const b = await copyOf(trees, (a) => exec('mkfifo', [join(a, 'pipe')]));
        expect((await lstat(join(b, 'pipe'))).isFIFO()).toBe(true);
      });

      it('goes on over forty generations', async () => {
        let parent = 'base';
        for (let generation = 0; generation < 40; generation++) {
          const path = await trees.prepare('g', { parent });
          await writeFile(join(path, `g${generation}`), '');
          if (generation > 0) await rm(join(path, `g${generation - 1}`));
          parent = `generation-${generation}-${'x'.repeat(40)}`;
          await trees.commit(parent, 'g');
          await trees.remove('g');
        }
        const last = await trees.prepare('g', { parent });
        expect((await readdir(last)).filter((file) => file.startsWith('g'))).toEqual(['g39']);
        expect(await readFile(join(last, 'file'), 'utf8')).toBe('content');
      }, 120_000);
    });

    describe('quota', () => {
      it('is enforced beyond the parent where the capability says so, and refused otherwise', async () => {
        if (!trees.capabilities.quota) {
          await rejects(trees.prepare('a', { quotaBytes: MIB }), 'unsupported');
          await rejects(trees.setQuota('seed', MIB), 'unsupported');
          await trees.setQuota('seed', null);
          return;
        }
        const path = await trees.prepare('a', { parent: 'base', quotaBytes: 5 * MIB });
        await write(join(path, 'fits'), 3 * MIB);
        await expect(write(join(path, 'too-much'), 4 * MIB)).rejects.toThrow(/EDQUOT|-122/);
      });

      it('can be raised, taken away, and met again by deleting', async () => {
        if (!trees.capabilities.quota) return rejects(trees.setQuota('seed', MIB), 'unsupported');
        const path = await trees.prepare('a', { quotaBytes: 2 * MIB });
        await expect(write(join(path, 'big'), 4 * MIB)).rejects.toThrow(/EDQUOT|-122/);
        await rm(join(path, 'big'));
        await exec('sync', ['-f', path]);
        await write(join(path, 'small'), MIB);
        await trees.setQuota('a', 12 * MIB);
        await write(join(path, 'big'), 8 * MIB);
        await trees.setQuota('a', null);
        await write(join(path, 'bigger'), 16 * MIB);
      });

      it('holds after the tree has been committed', async () => {
        if (!trees.capabilities.quota) return rejects(trees.setQuota('seed', MIB), 'unsupported');
        const path = await trees.prepare('a', { parent: 'base', quotaBytes: 4 * MIB });
        await write(join(path, 'first'), 3 * MIB);
        await trees.commit('c', 'a');
        await expect(write(join(path, 'second'), 3 * MIB)).rejects.toThrow(/EDQUOT|-122/);
      });

      it.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])('rejects %d bytes', async (bytes) => {
        await rejects(trees.prepare('a', { quotaBytes: bytes }), 'invalid_argument');
        await rejects(trees.setQuota('seed', bytes), 'invalid_argument');
      });

      it('rejects a key that is absent', async () => {
        await rejects(trees.setQuota('nobody', null), 'not_found');
      });
    });

    describe('usage and space', () => {
      it('counts what a tree has beyond its parent', async () => {
        const path = await trees.prepare('a', { parent: 'base' });
        await write(join(path, 'mine'), 6 * MIB);
        await exec('sync', ['-f', path]);
        const used = await trees.usage('a');
        expect(used).toBeGreaterThanOrEqual(6 * MIB);
        expect(used).toBeLessThan(7 * MIB);
        await trees.prepare('b', { parent: 'base' });
        await exec('sync', ['-f', path]);
        expect(await trees.usage('b')).toBeLessThan(MIB);
        await rejects(trees.usage('nobody'), 'not_found');
      });

      it('tells the space of the ground', async () => {
        const { totalBytes, freeBytes } = await trees.space();
        expect(totalBytes).toBeGreaterThan(100 * MIB);
        expect(freeBytes).toBeGreaterThan(0);
        expect(freeBytes).toBeLessThanOrEqual(totalBytes);
      });
    });

    describe('remove', () => {
      it('takes the tree away, and is done already when repeated', async () => {
        const path = await trees.prepare('a', { parent: 'base' });
        await trees.remove('a');
        await trees.remove('a');
        expect(await exists(path)).toBe(false);
        await rejects(trees.path('a'), 'not_found');
        expect(await readdir(await trees.prepare('a'))).toEqual([]);
      });

      it('is refused while another tree descends from it', async () => {
        await trees.commit('c', 'seed');
        await trees.prepare('a', { parent: 'c' });
        await trees.commit('d', 'a');
        await rejects(trees.remove('c'), 'failed_precondition');
        await trees.remove('a');
        await rejects(trees.remove('c'), 'failed_precondition');
        await trees.remove('d');
        await trees.remove('c');
      });

      it('leaves a commit alone when its source goes', async () => {
        await writeFile(join(await trees.prepare('a'), 'kept'), 'kept');
        await trees.commit('c', 'a');
        await trees.remove('a');
        expect(await readFile(join(await trees.prepare('b', { parent: 'c' }), 'kept'), 'utf8')).toBe('kept');
      });

      it('never wins against a child that is being made', async () => {
        for (let round = 0; round < 5; round++) {
          await trees.commit('c', 'seed');
          const [made, removed] = await Promise.allSettled([trees.prepare('a', { parent: 'c' }), trees.remove('c')]);
          // Either order is right; both succeeding is not.
          expect([made.status, removed.status].filter((status) => status === 'fulfilled')).toHaveLength(1);
          await trees.remove('a');
          await trees.remove('c');
        }
      });

      it('ends with the last of many verbs on one key', async () => {
        await Promise.all([trees.prepare('a'), trees.remove('a'), trees.prepare('a'), trees.remove('a')]);
        expect(await names(trees)).toEqual(['base', 'seed']);
        await Promise.all([trees.prepare('a'), trees.remove('a'), trees.prepare('a')]);
        expect(await names(trees)).toEqual(['a', 'base', 'seed']);
      });
    });

    describe('list', () => {
      it('names every tree with its kind and parent', async () => {
        await trees.prepare('a', { parent: 'base' });
        await trees.commit('c', 'a');
        expect(await trees.list()).toEqual([
          { name: 'a', kind: 'active', parent: 'base' },
          { name: 'base', kind: 'committed' },
          { name: 'c', kind: 'committed', parent: 'base' },
          { name: 'seed', kind: 'active' },
        ]);
      });
    });

    describe('after an end', () => {
      it('finds all trees again when it was closed', async () => {
        await writeFile(join(await trees.prepare('a', { parent: 'base' }), 'mine'), 'mine');
        const before = await trees.list();
        await trees.close();
        trees = await harness.open({ dir });
        expect(await trees.list()).toEqual(before);
        expect(await readFile(join(await trees.path('a'), 'mine'), 'utf8')).toBe('mine');
      });

      it('finds all trees again when it was killed, and doubles no mount', async () => {
        await trees.prepare('a', { parent: 'base' });
        const before = await mounts();
        const list = await trees.list();
        trees = await harness.open({ dir });
        expect(await trees.list()).toEqual(list);
        await trees.path('a');
        expect(await mounts()).toBe(before);
      });

      it('mounts again after a restart of the machine', async () => {
        const path = await trees.prepare('a', { parent: 'base' });
        await writeFile(join(path, 'mine'), 'mine');
        await harness.reboot(dir);
        expect(await exists(join(path, 'mine'))).toBe(false);
        trees = await harness.open({ dir });
        expect(await trees.path('a')).toBe(path);
        expect(await readFile(join(path, 'mine'), 'utf8')).toBe('mine');
        expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
      });

      it('still refuses to remove a tree that others descend from', async () => {
        await trees.prepare('a', { parent: 'base' });
        trees = await harness.open({ dir });
        await rejects(trees.remove('base'), 'failed_precondition');
      });
    });

    describe('a crash', () => {
      const verbs: Record<string, (at: Trees) => Promise<unknown>> = {
        prepare: (at) => at.prepare('a', { parent: 'base', ...(at.capabilities.quota && { quotaBytes: 3 * MIB }) }),
        'prepare of an empty tree': (at) => at.prepare('a'),
        commit: (at) => at.commit('c', 'seed'),
        setQuota: (at) => at.setQuota('seed', at.capabilities.quota ? 3 * MIB : null),
        remove: (at) => at.remove('victim'),
      };

      it.each(Object.keys(verbs))('between any two steps of %s is mended by opening and repeating', async (title) => {
        const verb = verbs[title]!;
        let total = 1;
        for (let stopAt = 0; stopAt < total; stopAt++) {
          await trees.prepare('victim', { parent: 'base' });
          total = Math.max(total, await crash(verb, stopAt));
          trees = await harness.open({ dir });
          const left = await names(trees);
          expect(['base', 'seed']).toEqual(left.filter((tree) => tree === 'base' || tree === 'seed'));
          // Whatever is listed is whole.
          for (const { name: tree, kind } of await trees.list()) {
            if (kind === 'active') await stat(await trees.path(tree));
            else await stat(await trees.prepare(`from-${tree}`, { parent: tree }));
          }
          await verb(trees);
          await verb(trees);
          if (trees.capabilities.quota && title === 'prepare') {
            await expect(write(join(await trees.path('a'), 'big'), 5 * MIB)).rejects.toThrow(/EDQUOT|-122/);
          }
          if (title === 'setQuota') await trees.setQuota('seed', null);
          if (title === 'remove') expect(await names(trees)).not.toContain('victim');
          await clear(trees, ['seed', 'base']);
          expect(await names(trees)).toEqual(['base', 'seed']);
        }
        expect(total).toBeGreaterThanOrEqual(title === 'remove' || title === 'setQuota' ? 2 : 3);
      }, 120_000);

      /** Runs the verb with a server that stops for ever at the given step. Resolves how many steps it saw, counting all when it got through. */
      async function crash(verb: (at: Trees) => Promise<unknown>, stopAt: number): Promise<number> {
        let steps = 0;
        let armed = false;
        let stopped = (): void => {};
        const stop = new Promise<void>((resolve) => {
          stopped = resolve;
        });
        const doomed = await harness.open({
          dir,
          onStep: () => {
            if (!armed || steps++ < stopAt) return;
            stopped();
            return new Promise<void>(() => {});
          },
        });
        armed = true;
        await Promise.race([verb(doomed), stop]);
        return steps + (steps > stopAt ? 1 : 0);
      }
    });

    it('leaves no mount, no loop device and no file after destroy', async () => {
      const other = join(dir, '..', `${dir.split('/').at(-1)}-gone`);
      const doomed = await harness.open({ dir: other });
      await write(join(await doomed.prepare('a'), 'file'), MIB);
      await doomed.commit('c', 'a');
      await doomed.prepare('b', { parent: 'c' });
      await doomed.destroy();
      expect(await exists(other)).toBe(false);
      expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain(other);
      expect((await exec('losetup', ['-a'])).stdout).not.toContain(other);
    });
  });
}

async function fill(path: string): Promise<void> {
  await writeFile(join(path, 'file'), 'content');
  await mkdir(join(path, 'folder'));
  await writeFile(join(path, 'folder', 'inner'), 'inner');
  await mkdir(join(path, 'renamed'));
  await writeFile(join(path, 'renamed', 'deep'), 'deep');
  await write(join(path, 'blob'), 2 * MIB);
}

/** Removes all trees but those, children first. */
async function clear(trees: Snapshotter, keep: string[]): Promise<void> {
  for (;;) {
    const list = await trees.list();
    const parents = new Set(list.map(({ parent }) => parent));
    const leaves = list.filter(({ name }) => !keep.includes(name) && !parents.has(name));
    if (leaves.length === 0) return;
    for (const { name } of leaves) await trees.remove(name);
  }
}

/** Fills an active tree, commits it and resolves a tree that starts from the commit. */
async function copyOf(trees: Snapshotter, work: (path: string) => Promise<unknown>): Promise<string> {
  await work(await trees.prepare('original'));
  await trees.commit('middle', 'original');
  return trees.prepare('copy', { parent: 'middle' });
}

async function names(trees: Snapshotter): Promise<string[]> {
  return (await trees.list()).map(({ name }) => name);
}

/** Content that no filesystem can make smaller, written through to the disk, so that a quota has to speak. */
async function write(path: string, bytes: number): Promise<void> {
  const file = await open(path, 'w');
  try {
    const chunk = Buffer.from(Array.from({ length: 65_536 }, (_, index) => (index * 2_654_435_761) >>> 24));
    for (let done = 0; done < bytes; done += chunk.length) await file.write(chunk);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

async function mounts(): Promise<number> {
  return (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').length;
}

async function rejects(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(isCayError(error) ? error.code : error).toBe(code);
}
