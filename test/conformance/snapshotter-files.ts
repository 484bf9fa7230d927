import { chmod, chown, link, lstat, readlink, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Snapshotter } from '../../server/src/host/snapshots/snapshotter.ts';
import { exec, MIB, type World } from './snapshotter-world.ts';

/** What a committed tree has to keep of each file. */
export function keepsFiles(world: World): void {
  describe('a commit', () => {
    it('keeps modes, owners and times', async () => {
      const b = await copyOf(world.trees, async (a) => {
        await writeFile(join(a, 'odd'), 'x');
        await chown(join(a, 'odd'), 1234, 4321);
        await chmod(join(a, 'odd'), 0o4751);
        await exec('touch', ['-d', '2001-02-03T04:05:06.123456789Z', join(a, 'odd')]);
      });
      const { mode, uid, gid, mtimeNs } = await stat(join(b, 'odd'), { bigint: true });
      expect([mode & 0o7777n, uid, gid]).toEqual([0o4751n, 1234n, 4321n]);
      // To the second at least: FUSE has no more.
      expect([981_173_106_123_456_789n, 981_173_106_000_000_000n]).toContain(mtimeNs);
    });

    const { noXattrs } = world.harness;
    if (noXattrs) console.warn(`Skipping extended attributes: ${noXattrs}`);
    it.skipIf(noXattrs !== undefined)('keeps extended attributes', async () => {
      const b = await copyOf(world.trees, async (a) => {
        await writeFile(join(a, 'odd'), 'x');
        await exec('python3', [
          '-c',
          'import os,sys; os.setxattr(sys.argv[1], "user.colour", b"blue")',
          join(a, 'odd'),
        ]);
      });
      const read = 'import os,sys; sys.stdout.buffer.write(os.getxattr(sys.argv[1], "user.colour"))';
      expect((await exec('python3', ['-c', read, join(b, 'odd')])).stdout).toBe('blue');
    });

    it('keeps the mode and owner of the root itself', async () => {
      const b = await copyOf(world.trees, async (a) => {
        await chown(a, 12, 34);
        await chmod(a, 0o1770);
      });
      const { mode, uid, gid } = await stat(b);
      expect([mode & 0o7777, uid, gid]).toEqual([0o1770, 12, 34]);
    });

    it('keeps symbolic links as they are, also those that lead outside', async () => {
      const b = await copyOf(world.trees, async (a) => {
        await symlink('/etc/passwd', join(a, 'outside'));
        await symlink('nowhere', join(a, 'dangling'));
      });
      expect(await readlink(join(b, 'outside'))).toBe('/etc/passwd');
      expect(await readlink(join(b, 'dangling'))).toBe('nowhere');
    });

    it('keeps hard links together', async () => {
      const b = await copyOf(world.trees, async (a) => {
        await writeFile(join(a, 'one'), 'x');
        await link(join(a, 'one'), join(a, 'two'));
      });
      const [one, two] = [await stat(join(b, 'one')), await stat(join(b, 'two'))];
      expect(one.ino).toBe(two.ino);
      expect(one.nlink).toBe(2);
    });

    it('keeps holes as holes', async () => {
      const b = await copyOf(world.trees, async (a) => {
        await writeFile(join(a, 'sparse'), 'x');
        await truncate(join(a, 'sparse'), 500 * MIB);
      });
      const { size, blocks } = await stat(join(b, 'sparse'));
      expect(size).toBe(500 * MIB);
      expect(blocks * 512).toBeLessThan(MIB);
    });

    it('keeps named pipes and sockets of the filesystem', async () => {
      const b = await copyOf(world.trees, (a) => exec('mkfifo', [join(a, 'pipe')]));
      expect((await lstat(join(b, 'pipe'))).isFIFO()).toBe(true);
    });
  });
}

/** Fills an active tree, commits it and resolves a tree that starts from the commit. */
async function copyOf(trees: Snapshotter, work: (path: string) => Promise<unknown>): Promise<string> {
  await work(await trees.prepare('original'));
  await trees.commit('middle', 'original');
  return trees.prepare('copy', { parent: 'middle' });
}
