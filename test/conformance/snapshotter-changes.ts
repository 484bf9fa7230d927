import {
  appendFile,
  chmod,
  chown,
  link,
  mkdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import type { FileChange } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { exec, MIB, names, rejects, type World, write } from './snapshotter-world.ts';

/** Committed trees as they can be looked at, and what differs between two of them. */
export function comparesTrees(world: World): void {
  /** Commits "before" and, after the work, "after", and resolves what differs. */
  async function changed(
    work: (path: string) => Promise<unknown>,
    before?: (path: string) => Promise<unknown>,
  ): Promise<FileChange[]> {
    const path = await world.trees.prepare('a', { parent: 'base' });
    await before?.(path);
    await world.trees.commit('before', 'a');
    await work(path);
    await world.trees.commit('after', 'a');
    return Array.fromAsync(world.trees.changes('before', 'after'));
  }
  const brief = (changes: FileChange[]): string[] =>
    changes.map(({ change, path, from, content, mode, owner }) =>
      [change, path, from && `from ${from}`, content && 'content', mode && 'mode', owner && 'owner']
        .filter(Boolean)
        .join(' '),
    );

  describe('committedPath', () => {
    it('shows the whole tree, read-only', async () => {
      const a = await world.trees.prepare('a', { parent: 'base' });
      await writeFile(join(a, 'new'), 'new');
      await world.trees.commit('c', 'a');
      const path = await world.trees.committedPath('c');
      expect(await readFile(join(path, 'new'), 'utf8')).toBe('new');
      expect(await readFile(join(path, 'folder', 'inner'), 'utf8')).toBe('inner');
      await expect(writeFile(join(path, 'other'), '')).rejects.toThrow(/EROFS/);
      await expect(appendFile(join(path, 'file'), 'x')).rejects.toThrow(/EROFS/);
      await expect(chmod(join(path, 'file'), 0o777)).rejects.toThrow(/EROFS/);
      await expect(unlink(join(path, 'file'))).rejects.toThrow(/EROFS/);
    });

    it('stays as it was while the tree that it came from goes on, and is the same each time', async () => {
      const a = await world.trees.prepare('a', { parent: 'base' });
      await world.trees.commit('c', 'a');
      const path = await world.trees.committedPath('c');
      await writeFile(join(a, 'file'), 'later');
      await world.trees.remove('a');
      expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
      expect(await world.trees.committedPath('c')).toBe(path);
      expect(await readFile(join(await world.trees.committedPath('base'), 'file'), 'utf8')).toBe('content');
    });

    it('goes with the tree', async () => {
      await world.trees.commit('c', 'seed');
      const path = await world.trees.committedPath('c');
      await world.trees.remove('c');
      await expect(stat(path)).rejects.toThrow(/ENOENT/);
      await rejects(world.trees.committedPath('c'), 'not_found');
    });

    it('is there again after a kill and after a restart of the machine', async () => {
      await world.trees.committedPath('base');
      world.trees = await world.harness.open({ dir: world.dir });
      expect(await readFile(join(await world.trees.committedPath('base'), 'file'), 'utf8')).toBe('content');
      await world.harness.reboot(world.dir);
      world.trees = await world.harness.open({ dir: world.dir });
      expect(await readFile(join(await world.trees.committedPath('base'), 'file'), 'utf8')).toBe('content');
    });

    it('rejects a tree that is active or absent, and a name that is none', async () => {
      await rejects(world.trees.committedPath('seed'), 'not_found');
      await rejects(world.trees.committedPath('nobody'), 'not_found');
      await rejects(world.trees.committedPath('../base'), 'invalid_argument');
    });
  });

  describe('changes', () => {
    it('are none between a tree and itself, and between two copies of one state', async () => {
      expect(await Array.fromAsync(world.trees.changes('base', 'base'))).toEqual([]);
      expect(await changed(async () => {})).toEqual([]);
    });

    it('tell what was added, removed and modified, in the order of paths', async () => {
      const found = await changed(async (a) => {
        await writeFile(join(a, 'file'), 'CONTENT');
        await rm(join(a, 'folder'), { recursive: true });
        await mkdir(join(a, 'new'), { mode: 0o750 });
        await writeFile(join(a, 'new', 'one'), '1', { mode: 0o640 });
        await writeFile(join(a, 'blob'), 'short');
      });
      expect(brief(found)).toEqual([
        'modified /blob content',
        'modified /file content',
        'removed /folder',
        'removed /folder/inner',
        'added /new',
        'added /new/one',
      ]);
      expect(found[0]).toMatchObject({ type: 'file', before: { size: 2 * MIB }, after: { size: 5 } });
      expect(found[2]).toMatchObject({ type: 'directory', before: { mode: 0o755, uid: 0, gid: 0 } });
      expect(found[2]).not.toHaveProperty('after');
      expect(found[4]).not.toHaveProperty('before');
      expect(found[5]).toMatchObject({ type: 'file', after: { size: 1, mode: 0o640, uid: 0, gid: 0 } });
    });

    it('tell modes and owners from content, also of the root', async () => {
      const found = await changed(async (a) => {
        await chmod(join(a, 'file'), 0o600);
        await chown(join(a, 'blob'), 1234, 4321);
        await chmod(join(a, 'folder'), 0o700);
        await chmod(a, 0o711);
      });
      expect(brief(found)).toEqual([
        'modified / mode',
        'modified /blob owner',
        'modified /file mode',
        'modified /folder mode',
      ]);
      expect(found[1]).toMatchObject({ before: { uid: 0, gid: 0 }, after: { uid: 1234, gid: 4321 } });
    });

    it('do not take new times for a change', async () => {
      const found = await changed(async (a) => {
        await exec('touch', [join(a, 'file'), join(a, 'folder'), a]);
        await writeFile(join(a, 'blob'), await readFile(join(a, 'blob')));
      });
      expect(found).toEqual([]);
    });

    it('see the same size with other content, and a time that was set back', async () => {
      const found = await changed(async (a) => {
        const { atime, mtime } = await stat(join(a, 'file'));
        await writeFile(join(a, 'file'), 'CONTENT');
        await exec('touch', ['-d', mtime.toISOString(), '-a', '-m', join(a, 'file')]);
        expect(atime).toBeDefined();
      });
      expect(brief(found)).toEqual(['modified /file content']);
    });

    it('tell a file that was moved', async () => {
      const found = await changed(async (a) => {
        await rename(join(a, 'file'), join(a, 'folder', 'moved'));
      });
      expect(brief(found)).toEqual(['renamed /folder/moved from /file']);
      expect(found[0]).toMatchObject({ before: { size: 7 }, after: { size: 7 } });
    });

    it('tell a directory that was moved in one entry', async () => {
      const found = await changed(
        (a) => rename(join(a, 'many'), join(a, 'folder', 'moved')),
        async (a) => {
          await mkdir(join(a, 'many', 'deep'), { recursive: true });
          for (let index = 0; index < 50; index++)
            await writeFile(join(a, 'many', 'deep', String(index)), String(index));
        },
      );
      expect(brief(found)).toEqual(['renamed /folder/moved from /many']);
      expect(found[0]!.type).toBe('directory');
    });

    it('tell symbolic links, hard links, pipes and devices', async () => {
      const found = await changed(
        async (a) => {
          await rm(join(a, 'sym'));
          await symlink('other', join(a, 'sym'));
          await link(join(a, 'file'), join(a, 'second'));
          await exec('mkfifo', [join(a, 'pipe')]);
          await exec('mknod', [join(a, 'null'), 'c', '1', '3']);
          await symlink('/etc/passwd', join(a, 'outside'));
        },
        (a) => symlink('one', join(a, 'sym')),
      );
      expect(brief(found)).toEqual([
        'added /null',
        'added /outside',
        'added /pipe',
        'added /second',
        'modified /sym content',
      ]);
      expect(found.map(({ type }) => type)).toEqual(['other', 'symlink', 'other', 'file', 'symlink']);
    });

    it('tell a path that has another type now as removed and added', async () => {
      const found = await changed(async (a) => {
        await rm(join(a, 'file'));
        await mkdir(join(a, 'file'));
        await rm(join(a, 'folder'), { recursive: true });
        await symlink('/etc', join(a, 'folder'));
      });
      expect(brief(found)).toEqual([
        'removed /file',
        'added /file',
        'removed /folder',
        'added /folder',
        'removed /folder/inner',
      ]);
    });

    it('take any name that a file may have', async () => {
      const found = await changed(async (a) => {
        await writeFile(Buffer.concat([Buffer.from(`${a}/`), Buffer.from([0xff, 0xfe, 0x20])]), '');
        await writeFile(join(a, 'two\nlines'), '');
        await writeFile(join(a, 'größe'), '');
        await writeFile(join(a, 'x'.repeat(255)), '');
      });
      expect(found.map(({ path }) => path)).toEqual([
        '/größe',
        '/two\nlines',
        `/${'x'.repeat(255)}`,
        '/\ufffd\ufffd ',
      ]);
    });

    it('are told between trees that went different ways, in both directions', async () => {
      for (const key of ['a', 'b']) {
        const path = await world.trees.prepare(key, { parent: 'base' });
        await writeFile(join(path, `only-${key}`), key);
        await writeFile(join(path, 'both'), `of ${key}`);
        await world.trees.commit(`c${key}`, key);
      }
      const there = await Array.fromAsync(world.trees.changes('ca', 'cb'));
      expect(brief(there)).toEqual(['modified /both content', 'removed /only-a', 'added /only-b']);
      const back = await Array.fromAsync(world.trees.changes('cb', 'ca'));
      expect(brief(back)).toEqual(['modified /both content', 'added /only-a', 'removed /only-b']);
    });

    it('are told between trees that have nothing in common', async () => {
      await writeFile(join(await world.trees.prepare('a'), 'file'), 'content');
      await world.trees.commit('c', 'a');
      const found = brief(await Array.fromAsync(world.trees.changes('base', 'c')));
      expect(found).toEqual([
        'removed /blob',
        'removed /folder',
        'removed /folder/inner',
        'removed /renamed',
        'removed /renamed/deep',
      ]);
    });

    it('are whole also when the trees are removed meanwhile, or reject', async () => {
      const a = await world.trees.prepare('a', { parent: 'base' });
      for (let index = 0; index < 300; index++) await writeFile(join(a, `file-${index}`), String(index));
      await world.trees.commit('b', 'a');
      await world.trees.commit('c', 'a');
      const verbs = [
        Array.fromAsync(world.trees.changes('b', 'c')),
        Array.fromAsync(world.trees.changes('c', 'b')),
        world.trees.remove('b'),
        world.trees.remove('c'),
      ];
      const [there, back, ...removed] = await Promise.allSettled(verbs);
      for (const found of [there, back]) if (found!.status === 'fulfilled') expect(found!.value).toEqual([]);
      expect(removed.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
    });

    it('can be given up', async () => {
      await world.trees.commit('c', 'seed');
      const signal = AbortSignal.abort(new Error('enough'));
      await expect(Array.fromAsync(world.trees.changes('base', 'c', { signal }))).rejects.toThrow('enough');
    });

    it('reject a tree that is active or absent', async () => {
      await rejects(Array.fromAsync(world.trees.changes('base', 'seed')), 'not_found');
      await rejects(Array.fromAsync(world.trees.changes('nobody', 'base')), 'not_found');
      expect(await names(world.trees)).toEqual(['base', 'seed']);
    });
  });

  describe('time travel', () => {
    it('goes back by preparing from a commit, and keeps the way not taken', async () => {
      const now = await world.trees.prepare('now', { parent: 'base' });
      await writeFile(join(now, 'file'), 'turn 1');
      await world.trees.commit('turn-1', 'now');
      await writeFile(join(now, 'file'), 'turn 2');
      await world.trees.commit('turn-2', 'now');
      const back = await world.trees.prepare('back', { parent: 'turn-1' });
      await world.trees.remove('now');
      expect(await readFile(join(back, 'file'), 'utf8')).toBe('turn 1');
      await writeFile(join(back, 'file'), 'turn 3');
      await world.trees.commit('turn-3', 'back');
      expect(brief(await Array.fromAsync(world.trees.changes('turn-2', 'turn-3')))).toEqual([
        'modified /file content',
      ]);
      expect(await readFile(join(await world.trees.committedPath('turn-2'), 'file'), 'utf8')).toBe('turn 2');
    });

    it('removes turns in any order', async () => {
      const a = await world.trees.prepare('a', { parent: 'base' });
      for (let turn = 1; turn <= 4; turn++) {
        await writeFile(join(a, 'turn'), String(turn));
        await world.trees.commit(`t${turn}`, 'a');
      }
      await world.trees.remove('t2');
      await world.trees.remove('t4');
      await world.trees.remove('a');
      await world.trees.remove('t1');
      expect(await readFile(join(await world.trees.committedPath('t3'), 'turn'), 'utf8')).toBe('3');
      const again = await world.trees.prepare('a', { parent: 't3' });
      expect(await readFile(join(again, 'turn'), 'utf8')).toBe('3');
    });

    it('copies copies', async () => {
      let parent = 'base';
      for (const key of ['one', 'two', 'three']) {
        const path = await world.trees.prepare(key, { parent });
        await writeFile(join(path, key), key);
        parent = `c-${key}`;
        await world.trees.commit(parent, key);
      }
      expect(brief(await Array.fromAsync(world.trees.changes('base', 'c-three')))).toEqual([
        'added /one',
        'added /three',
        'added /two',
      ]);
      await rejects(world.trees.remove('c-one'), 'failed_precondition');
    });

    it('gives the space of a tree back whose commits stay', async () => {
      const a = await world.trees.prepare('a', { parent: 'base' });
      await world.trees.commit('c', 'a');
      await write(join(a, 'big'), 20 * MIB);
      // The counters are those of the last transaction.
      const freeBytes = async (): Promise<number> => {
        const path = await world.trees.path('seed');
        // Also has a btrfs clean up at once rather than within half a minute.
        await exec('btrfs', ['filesystem', 'sync', path]).catch(() => exec('sync', ['-f', path]));
        return (await world.trees.space()).freeBytes;
      };
      const before = await freeBytes();
      await world.trees.remove('a');
      await expect.poll(freeBytes, { timeout: 45_000, interval: 250 }).toBeGreaterThan(before + 15 * MIB);
    }, 60_000);
  });
}
