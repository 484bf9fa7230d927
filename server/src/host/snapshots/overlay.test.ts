import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { snapshotterSuite } from '../../../../test/conformance/snapshotter-suite.ts';
import { isMountPoint } from './mounts.ts';
import { openOverlay } from './overlay.ts';

const exec = promisify(execFile);

const reason = await whyNot();
if (reason) console.warn(`Skipping the tests of overlay: ${reason}`);

async function whyNot(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'they need root';
  const dir = await mkdtemp(join(tmpdir(), 'cay-overlay-probe-'));
  try {
    await (await openOverlay({ dir })).destroy();
    return undefined;
  } catch (error) {
    return String(error);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

describe.skipIf(reason !== undefined)('overlay', () => {
  snapshotterSuite('overlay', {
    open: (options) => openOverlay(options),
    openSmall: async (dir) => {
      await mkdir(dir);
      await exec('mount', ['-t', 'tmpfs', '-o', 'size=200m', 'tmpfs', dir]);
      return { trees: await openOverlay({ dir }), end: async () => void (await exec('umount', [dir])) };
    },
    reboot: async (dir) => {
      for (const name of await readdir(join(dir, 'mounts'))) {
        const path = join(dir, 'mounts', name);
        if (await isMountPoint(path)) await exec('umount', [path]);
      }
    },
  });

  it('becomes a whole copy when it has too many layers', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'cay-overlay-'));
    const trees = await openOverlay({ dir, maxLayers: 3 });
    try {
      let parent: string | undefined;
      for (let generation = 0; generation < 5; generation++) {
        const path = await trees.prepare('a', parent === undefined ? {} : { parent });
        await writeFile(join(path, `file-${generation}`), String(generation));
        parent = `c${generation}`;
        await trees.commit(parent, 'a');
        await trees.remove('a');
      }
      const layer = (name: string): Promise<string[]> => readdir(join(dir, 'trees', name, 'fs'));
      expect(await layer('c1')).toEqual(['file-1']);
      expect(await layer('c2')).toEqual(['file-0', 'file-1', 'file-2']);
      expect(await layer('c3')).toEqual(['file-3']);
      // The whole copy stands alone on disk, and in the forest it still has its parent.
      await expect(trees.remove('c1')).rejects.toMatchObject({ code: 'failed_precondition' });
      expect(await readdir(await trees.prepare('b', { parent: 'c4' }))).toHaveLength(5);
    } finally {
      await trees.destroy();
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('takes away the mount of a tree that is gone', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'cay-overlay-'));
    const trees = await openOverlay({ dir });
    try {
      await trees.prepare('a');
      await rm(join(dir, 'trees', 'a'), { recursive: true });
      const again = await openOverlay({ dir });
      expect(await again.list()).toEqual([]);
      expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain(dir);
    } finally {
      await trees.destroy();
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('refuses to remove a tree that someone stands in', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'cay-overlay-'));
    const trees = await openOverlay({ dir });
    try {
      const path = await trees.prepare('a');
      const guest = execFile('sleep', ['60'], { cwd: path });
      const ended = new Promise((resolve) => guest.on('exit', resolve));
      try {
        await expect(trees.remove('a')).rejects.toMatchObject({ code: 'failed_precondition' });
        await writeFile(join(path, 'file'), 'still usable');
      } finally {
        guest.kill();
        await ended;
      }
      await trees.remove('a');
      expect(await trees.list()).toEqual([]);
    } finally {
      await trees.destroy();
      await rm(dir, { recursive: true, force: true });
    }
  });
});
