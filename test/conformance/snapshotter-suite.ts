/**
 * What every Snapshotter has to do, run against the real thing.
 *
 *     snapshotterSuite('btrfs', { open: ({ dir, onStep }) => openBtrfs({ dir, onStep }), … });
 */
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { comparesTrees } from './snapshotter-changes.ts';
import { survivesEnds } from './snapshotter-ends.ts';
import { staysUsable } from './snapshotter-full.ts';
import { keepsFiles } from './snapshotter-files.ts';
import {
  clear,
  exec,
  exists,
  fill,
  MIB,
  names,
  rejects,
  type SnapshotterHarness,
  type World,
  write,
} from './snapshotter-world.ts';

export function snapshotterSuite(name: string, harness: SnapshotterHarness): void {
  describe(`snapshotter ${name}`, () => {
    // Opened before the first test; some tests open it again.
    const world = { harness } as World;

    beforeAll(async () => {
      world.dir = await mkdtemp(join(tmpdir(), `cay-snapshotter-${name}-`));
      world.trees = await harness.open({ dir: world.dir });
      await fill(await world.trees.prepare('seed'));
      await world.trees.commit('base', 'seed');
    }, 60_000);

    afterEach(async () => {
      await clear(world.trees, ['seed', 'base']);
    }, 60_000);

    afterAll(async () => {
      await world.trees?.destroy();
      if (world.dir) await rm(world.dir, { recursive: true, force: true });
    }, 60_000);

    describe('prepare', () => {
      it('makes an empty directory without a parent', async () => {
        const path = await world.trees.prepare('a');
        expect(await readdir(path)).toEqual([]);
        expect((await stat(path)).mode & 0o7777).toBe(0o755);
      });

      it('makes a writable copy of its parent', async () => {
        const path = await world.trees.prepare('a', { parent: 'base' });
        expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
        await writeFile(join(path, 'file'), 'changed');
        expect(await readFile(join(path, 'file'), 'utf8')).toBe('changed');
      });

      it('is done already for the same key and parent, and keeps what was written', async () => {
        const path = await world.trees.prepare('a', { parent: 'base' });
        await writeFile(join(path, 'new'), 'mine');
        expect(await world.trees.prepare('a', { parent: 'base' })).toBe(path);
        expect(await readFile(join(path, 'new'), 'utf8')).toBe('mine');
      });

      it('rejects a key that has another parent', async () => {
        await world.trees.prepare('a', { parent: 'base' });
        await rejects(world.trees.prepare('a'), 'already_exists');
      });

      it('rejects the name of a committed tree as its key', async () => {
        await rejects(world.trees.prepare('base'), 'already_exists');
        await rejects(world.trees.prepare('base', { parent: 'base' }), 'already_exists');
      });

      it('rejects a parent that does not exist and leaves nothing', async () => {
        await rejects(world.trees.prepare('a', { parent: 'nobody' }), 'not_found');
        await rejects(world.trees.path('a'), 'not_found');
        expect(await names(world.trees)).toEqual(['base', 'seed']);
      });

      it('rejects an active tree as a parent', async () => {
        await rejects(world.trees.prepare('a', { parent: 'seed' }), 'not_found');
      });

      it('gives siblings nothing of one another', async () => {
        const a = await world.trees.prepare('a', { parent: 'base' });
        const b = await world.trees.prepare('b', { parent: 'base' });
        await writeFile(join(a, 'file'), 'of a');
        await rm(join(b, 'folder'), { recursive: true });
        expect(await readFile(join(b, 'file'), 'utf8')).toBe('content');
        expect(await readdir(join(a, 'folder'))).toEqual(['inner']);
        const c = await world.trees.prepare('c', { parent: 'base' });
        expect(await readFile(join(c, 'file'), 'utf8')).toBe('content');
        expect(await readdir(join(c, 'folder'))).toEqual(['inner']);
      });

      it('makes many at once', async () => {
        const keys = Array.from({ length: harness.slow ? 6 : 20 }, (_, index) => `many-${index}`);
        const paths = await Promise.all(keys.map((key) => world.trees.prepare(key, { parent: 'base' })));
        expect(new Set(paths).size).toBe(keys.length);
        for (const path of paths) expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
        expect((await names(world.trees)).length).toBe(keys.length + 2);
      }, 60_000);

      it('makes one tree when the same key is asked for many times at once', async () => {
        const paths = await Promise.all(
          Array.from({ length: 8 }, () => world.trees.prepare('a', { parent: 'base' })),
        );
        expect(new Set(paths).size).toBe(1);
      });

      it('keeps a hundred trees apart', async () => {
        const count = harness.slow ? 10 : 100;
        for (let index = 0; index < count; index++) {
          const path = await world.trees.prepare(`t${index}`, { parent: 'base' });
          await writeFile(join(path, 'own'), String(index));
        }
        for (let index = 0; index < count; index++) {
          expect(await readFile(join(await world.trees.path(`t${index}`), 'own'), 'utf8')).toBe(
            String(index),
          );
        }
        expect((await world.trees.list()).filter(({ parent }) => parent === 'base')).toHaveLength(count);
      }, 120_000);
    });

    describe('names', () => {
      const hostile = [
        '',
        '.',
        '..',
        '/',
        'a/b',
        '../a',
        'a b',
        'A',
        'a.b',
        'a\n',
        'a\0',
        '-'.repeat(65),
        'ä',
        'a:b',
        'a,b',
      ];

      it.each(hostile)('rejects %j everywhere', async (bad) => {
        await rejects(world.trees.prepare(bad), 'invalid_argument');
        await rejects(world.trees.prepare('a', { parent: bad }), 'invalid_argument');
        await rejects(world.trees.commit(bad, 'seed'), 'invalid_argument');
        await rejects(world.trees.commit('c', bad), 'invalid_argument');
        await rejects(world.trees.path(bad), 'invalid_argument');
        await rejects(world.trees.remove(bad), 'invalid_argument');
        await rejects(world.trees.usage(bad), 'invalid_argument');
        await rejects(world.trees.setQuota(bad, null), 'invalid_argument');
        expect(await names(world.trees)).toEqual(['base', 'seed']);
      });

      it('takes 64 characters, and a leading dash', async () => {
        for (const key of ['x'.repeat(64), '-rf', '--help', '_']) {
          await writeFile(join(await world.trees.prepare(key, { parent: 'base' }), 'own'), key);
          await world.trees.commit(`c${key.slice(0, 60)}`, key);
          expect(await readFile(join(await world.trees.path(key), 'own'), 'utf8')).toBe(key);
          await world.trees.remove(`c${key.slice(0, 60)}`);
          await world.trees.remove(key);
        }
        expect(await names(world.trees)).toEqual(['base', 'seed']);
      });
    });

    describe('path', () => {
      it('is where prepare said', async () => {
        expect(await world.trees.path('seed')).toBe(await world.trees.prepare('seed'));
      });

      it('rejects a tree that is committed or absent', async () => {
        await rejects(world.trees.path('base'), 'not_found');
        await rejects(world.trees.path('nobody'), 'not_found');
      });
    });

    describe('commit', () => {
      it('keeps the tree as it was and leaves the key active', async () => {
        const a = await world.trees.prepare('a', { parent: 'base' });
        await writeFile(join(a, 'one'), '1');
        await world.trees.commit('c', 'a');
        await writeFile(join(a, 'one'), '2');
        await writeFile(join(a, 'later'), '');
        const copy = await world.trees.prepare('b', { parent: 'c' });
        expect(await readFile(join(copy, 'one'), 'utf8')).toBe('1');
        expect(await exists(join(copy, 'later'))).toBe(false);
        expect(await readFile(join(copy, 'file'), 'utf8')).toBe('content');
      });

      it('keeps what was removed, replaced and renamed', async () => {
        const a = await world.trees.prepare('a', { parent: 'base' });
        await rm(join(a, 'file'));
        await rm(join(a, 'folder'), { recursive: true });
        await mkdir(join(a, 'folder'));
        await writeFile(join(a, 'folder', 'other'), '');
        await rename(join(a, 'renamed'), join(a, 'new-name'));
        await world.trees.commit('c', 'a');
        const b = await world.trees.prepare('b', { parent: 'c' });
        expect(await exists(join(b, 'file'))).toBe(false);
        expect(await readdir(join(b, 'folder'))).toEqual(['other']);
        expect(await exists(join(b, 'renamed'))).toBe(false);
        expect(await readFile(join(b, 'new-name', 'deep'), 'utf8')).toBe('deep');
      });

      it('is done already for the same name and key, and keeps the first copy', async () => {
        const a = await world.trees.prepare('a');
        await world.trees.commit('c', 'a');
        await writeFile(join(a, 'later'), '');
        await world.trees.commit('c', 'a');
        expect(await readdir(await world.trees.prepare('b', { parent: 'c' }))).toEqual([]);
        await world.trees.remove('a');
        await world.trees.commit('c', 'a');
      });

      it('rejects a name that comes from another key or is active', async () => {
        await world.trees.prepare('a');
        await world.trees.commit('c', 'a');
        await rejects(world.trees.commit('c', 'seed'), 'already_exists');
        await rejects(world.trees.commit('a', 'seed'), 'already_exists');
        await rejects(world.trees.commit('a', 'a'), 'already_exists');
      });

      it('rejects a key that is committed or absent, and leaves nothing', async () => {
        await rejects(world.trees.commit('c', 'base'), 'not_found');
        await rejects(world.trees.commit('c', 'nobody'), 'not_found');
        expect(await names(world.trees)).toEqual(['base', 'seed']);
      });

      it('takes a tree in which files come and go', async () => {
        const a = await world.trees.prepare('a', { parent: 'base' });
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
          for (let round = 0; round < 5; round++) await world.trees.commit(`c${round}`, 'a');
        } finally {
          done = true;
          await writer;
        }
        for (let round = 0; round < 5; round++) {
          const copy = await world.trees.prepare(`b${round}`, { parent: `c${round}` });
          expect(await readFile(join(copy, 'file'), 'utf8')).toBe('content');
        }
      }, 60_000);

      it('goes on over forty generations', async () => {
        let parent = 'base';
        const count = harness.slow ? 8 : 40;
        for (let generation = 0; generation < count; generation++) {
          const path = await world.trees.prepare('g', { parent });
          await writeFile(join(path, `g${generation}`), '');
          if (generation > 0) await rm(join(path, `g${generation - 1}`));
          parent = `generation-${generation}-${'x'.repeat(40)}`;
          await world.trees.commit(parent, 'g');
          await world.trees.remove('g');
        }
        const last = await world.trees.prepare('g', { parent });
        expect((await readdir(last)).filter((file) => file.startsWith('g'))).toEqual([`g${count - 1}`]);
        expect(await readFile(join(last, 'file'), 'utf8')).toBe('content');
      }, 120_000);
    });

    describe('quota', () => {
      it('is enforced beyond the parent where the capability says so, and refused otherwise', async () => {
        if (!world.trees.capabilities.quota) {
          await rejects(world.trees.prepare('a', { quotaBytes: MIB }), 'unsupported');
          await rejects(world.trees.setQuota('seed', MIB), 'unsupported');
          await world.trees.setQuota('seed', null);
          return;
        }
        const path = await world.trees.prepare('a', { parent: 'base', quotaBytes: 5 * MIB });
        await write(join(path, 'fits'), 3 * MIB);
        await expect(write(join(path, 'too-much'), 4 * MIB)).rejects.toThrow(/EDQUOT|-122/);
      });

      it('can be raised, taken away, and met again by deleting', async () => {
        if (!world.trees.capabilities.quota) return rejects(world.trees.setQuota('seed', MIB), 'unsupported');
        const path = await world.trees.prepare('a', { quotaBytes: 2 * MIB });
        await expect(write(join(path, 'big'), 4 * MIB)).rejects.toThrow(/EDQUOT|-122/);
        await rm(join(path, 'big'));
        await exec('sync', ['-f', path]);
        await write(join(path, 'small'), MIB);
        await world.trees.setQuota('a', 12 * MIB);
        await write(join(path, 'big'), 8 * MIB);
        await world.trees.setQuota('a', null);
        await write(join(path, 'bigger'), 16 * MIB);
      });

      it('holds after the tree has been committed', async () => {
        if (!world.trees.capabilities.quota) return rejects(world.trees.setQuota('seed', MIB), 'unsupported');
        const path = await world.trees.prepare('a', { parent: 'base', quotaBytes: 4 * MIB });
        await write(join(path, 'first'), 3 * MIB);
        await world.trees.commit('c', 'a');
        await expect(write(join(path, 'second'), 3 * MIB)).rejects.toThrow(/EDQUOT|-122/);
      });

      it.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])('rejects %d bytes', async (bytes) => {
        await rejects(world.trees.prepare('a', { quotaBytes: bytes }), 'invalid_argument');
        await rejects(world.trees.setQuota('seed', bytes), 'invalid_argument');
      });

      it('rejects a key that is absent', async () => {
        await rejects(world.trees.setQuota('nobody', null), 'not_found');
      });
    });

    describe('usage and space', () => {
      it('counts what a tree has beyond its parent', async () => {
        const path = await world.trees.prepare('a', { parent: 'base' });
        await write(join(path, 'mine'), 6 * MIB);
        await exec('sync', ['-f', path]);
        const used = await world.trees.usage('a');
        expect(used).toBeGreaterThanOrEqual(6 * MIB);
        expect(used).toBeLessThan(7 * MIB);
        await world.trees.prepare('b', { parent: 'base' });
        await exec('sync', ['-f', path]);
        expect(await world.trees.usage('b')).toBeLessThan(MIB);
        await rejects(world.trees.usage('nobody'), 'not_found');
      });

      it('tells the space of the platform', async () => {
        const { totalBytes, freeBytes } = await world.trees.space();
        expect(totalBytes).toBeGreaterThan(100 * MIB);
        expect(freeBytes).toBeGreaterThan(0);
        expect(freeBytes).toBeLessThanOrEqual(totalBytes);
      });
    });

    describe('remove', () => {
      it('takes the tree away, and is done already when repeated', async () => {
        const path = await world.trees.prepare('a', { parent: 'base' });
        await world.trees.remove('a');
        await world.trees.remove('a');
        expect(await exists(path)).toBe(false);
        await rejects(world.trees.path('a'), 'not_found');
        expect(await readdir(await world.trees.prepare('a'))).toEqual([]);
      });

      it('is refused while another tree descends from it', async () => {
        await world.trees.commit('c', 'seed');
        await world.trees.prepare('a', { parent: 'c' });
        await world.trees.commit('d', 'a');
        await rejects(world.trees.remove('c'), 'failed_precondition');
        await world.trees.remove('a');
        await rejects(world.trees.remove('c'), 'failed_precondition');
        await world.trees.remove('d');
        await world.trees.remove('c');
      });

      it('leaves a commit alone when its source goes', async () => {
        await writeFile(join(await world.trees.prepare('a'), 'kept'), 'kept');
        await world.trees.commit('c', 'a');
        await world.trees.remove('a');
        expect(await readFile(join(await world.trees.prepare('b', { parent: 'c' }), 'kept'), 'utf8')).toBe(
          'kept',
        );
      });

      it('never wins against a child that is being made', async () => {
        for (let round = 0; round < 5; round++) {
          await world.trees.commit('c', 'seed');
          const [made, removed] = await Promise.allSettled([
            world.trees.prepare('a', { parent: 'c' }),
            world.trees.remove('c'),
          ]);
          // Either order is right; both succeeding is not.
          expect([made.status, removed.status].filter((status) => status === 'fulfilled')).toHaveLength(1);
          await world.trees.remove('a');
          await world.trees.remove('c');
        }
      });

      it('ends with the last of many verbs on one key', async () => {
        await Promise.all([
          world.trees.prepare('a'),
          world.trees.remove('a'),
          world.trees.prepare('a'),
          world.trees.remove('a'),
        ]);
        expect(await names(world.trees)).toEqual(['base', 'seed']);
        await Promise.all([world.trees.prepare('a'), world.trees.remove('a'), world.trees.prepare('a')]);
        expect(await names(world.trees)).toEqual(['a', 'base', 'seed']);
      });
    });

    describe('list', () => {
      it('names every tree with its kind and parent', async () => {
        await world.trees.prepare('a', { parent: 'base' });
        await world.trees.commit('c', 'a');
        expect(await world.trees.list()).toEqual([
          { name: 'a', kind: 'active', parent: 'base' },
          { name: 'base', kind: 'committed' },
          { name: 'c', kind: 'committed', parent: 'base' },
          { name: 'seed', kind: 'active' },
        ]);
      });
    });

    keepsFiles(world);
    comparesTrees(world);
    survivesEnds(world);
    staysUsable(world);

    it('leaves no mount, no loop device and no file after destroy', async () => {
      const other = `${world.dir}-gone`;
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
