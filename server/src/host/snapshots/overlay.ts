/**
 * Trees are overlayfs layers, on any disk. Making one costs a mount; copying one costs as much as was written
 * to it.
 *     <dir>/trees/<name>/fs     what the tree has beyond its parent
 *     <dir>/trees/<key>/work    work directory of overlayfs, for active trees
 *     <dir>/mounts/<name>       the whole tree; committed ones are mounted on demand, read-only
 *     <dir>/records/<name>      their records
 *     <dir>/staging, trash      trees being made or deleted; removed on open
 *     <dir>/empty               the lower layer of a tree without a parent
 *
 * A tree appears and disappears by a rename of its directory.
 */
import { chmod, chown, mkdir, readdir, realpath, rename, rm, rmdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { attempt, command } from './command.ts';
import { compareTrees } from './compare/compare-trees.ts';
import { openForest } from './forest.ts';
import type { StepHook } from './known-trees.ts';
import type { TreeDriver } from './tree-driver.ts';
import { FEATURES, overlayMounts } from './overlay-mounts.ts';
import { diskSpace, isMountPoint } from './mounts.ts';
import { openRecords } from './records.ts';
import type { Snapshotter } from './snapshotter.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface OverlayOptions {
  dir: string;
  /** A committed tree with more layers than this is made a full copy. */
  maxLayers?: number;
  onStep?: StepHook;
}

export interface OverlaySnapshotter extends Snapshotter {
  /** Removes every tree and mount. */
  destroy(): Promise<void>;
}

/** The names of all layers must fit in one page (4096 bytes): 32 names of 64 characters do. */
const MAX_LAYERS = 32;

export async function openOverlay(options: OverlayOptions): Promise<OverlaySnapshotter> {
  const { onStep, maxLayers = MAX_LAYERS } = options;
  const step = async (name: string): Promise<void> => onStep?.(name);
  await mkdir(options.dir, { recursive: true });
  const dir = await realpath(options.dir);
  const treesDir = join(dir, 'trees');
  const mountsDir = join(dir, 'mounts');
  const staging = join(dir, 'staging');
  const trash = join(dir, 'trash');
  const empty = join(dir, 'empty');
  const folders = [treesDir, mountsDir, staging, trash, empty];
  await probe(dir);
  for (const path of folders) {
    await mkdir(path, { recursive: true });
    // Only root reaches a tree by its path; sandboxes have it mounted.
    await chmod(path, 0o700);
  }
  const at = (name: string): string => join(treesDir, name);
  const { chain, mount, unmount } = overlayMounts({
    treesDir,
    mountsDir,
    recordOf: (name) => forest.record(name),
  });
  /** Directories being deleted: `remove` does not wait for each of their files. */
  const deletions = new Set<Promise<void>>();
  let discarded = 0;

  function discard(path: string): void {
    const deletion = rm(path, { recursive: true, force: true }).catch(() => {});
    deletions.add(deletion);
    inBackground(
      deletion.finally(() => deletions.delete(deletion)),
      ignoreFailure,
    );
  }

  const driver: TreeDriver = {
    async trees() {
      for (const folder of [staging, trash]) {
        for (const name of await readdir(folder))
          await rm(join(folder, name), { recursive: true, force: true });
      }
      const names = await readdir(treesDir);
      for (const name of await readdir(mountsDir)) if (!names.includes(name)) await unmount(name);
      return names;
    },

    async repair(name, { kind }) {
      // Views that a killed server left mounted. A view that is still in use stays.
      if (kind === 'committed') await unmount(name).catch(() => {});
    },

    async plan(record) {
      if (record.kind === 'active') return record;
      return chain(record.parent).length + 1 >= maxLayers ? { ...record, flat: true } : record;
    },

    async make(key, record) {
      // A failure may have left a tree with this name.
      await driver.drop(key, record);
      const next = join(staging, key);
      await rm(next, { recursive: true, force: true });
      await mkdir(join(next, 'work'), { recursive: true });
      await mkdir(join(next, 'fs'));
      if (record.parent !== undefined)
        await copyRootAttributes(join(at(record.parent), 'fs'), join(next, 'fs'));
      await step('prepare:rename');
      await rename(next, at(key));
      await step('prepare:mount');
      await mount(key, record);
    },

    async copy(name, key, record) {
      if (record.flat) await mount(key, forest.record(key)!);
      const next = join(staging, name);
      await rm(next, { recursive: true, force: true });
      await mkdir(next);
      const source = record.flat ? join(mountsDir, key) : join(at(key), 'fs');
      await copyTree(source, join(next, 'fs'));
      await step('commit:flush');
      // A committed tree must be complete after a power loss.
      await command(['sync', '-f', next], { timeoutMs: 600_000 });
      await step('commit:rename');
      await rename(next, at(name));
    },

    async drop(name) {
      await unmount(name);
      const gone = join(trash, `${name}.${++discarded}`);
      try {
        await rename(at(name), gone);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
        throw error;
      }
      discard(gone);
    },

    path: mount,
    committedPath: mount,

    compare: ({ path: from }, { path: to }, signal) =>
      compareTrees({ from, to, identity: 'likeness', signal }),

    limit: async () => {},

    async usage(name) {
      // `du` reports a file that disappears meanwhile; that is no failure.
      const { stdout } = await attempt(['du', '-s', '-B1', join(at(name), 'fs')], { timeoutMs: 600_000 });
      return Number.parseInt(stdout, 10);
    },
  };

  const records = await openRecords(join(dir, 'records'));
  const forest = await openForest({ driver, records, driverName: 'overlay', quota: false, onStep });

  return {
    name: 'overlay',
    capabilities: { quota: false, instant: false, incremental: false },
    ...forest.trees,

    async space() {
      return diskSpace(dir);
    },

    async close() {
      // A reader of a committed tree keeps its mount busy; the next open adopts it.
      for (const { name, kind } of await forest.trees.list())
        if (kind === 'committed') await unmount(name).catch(() => {});
      await Promise.all(deletions);
    },

    async destroy() {
      for (const name of await readdir(mountsDir)) await unmount(name);
      await Promise.all(deletions);
      for (const path of [...folders, join(dir, 'records')]) await rm(path, { recursive: true, force: true });
      // The directory may hold files of others.
      await rmdir(dir).catch(() => {});
    },
  };
}

/** Tries a mount: permissions, kernel and disk must all allow it. */
async function probe(dir: string): Promise<void> {
  const base = join(dir, 'probe');
  const at = join(base, 'mount');
  if (await isMountPoint(at)) await attempt(['umount', at]);
  for (const name of ['lower', 'upper', 'work', 'mount']) await mkdir(join(base, name), { recursive: true });
  const data = `lowerdir=lower,upperdir=upper,workdir=work,${FEATURES}`;
  const { exitCode, stderr } = await attempt(['mount', '-t', 'overlay', '-o', data, 'overlay', at], {
    cwd: base,
  });
  if (exitCode === 0) await command(['umount', at]);
  await rm(base, { recursive: true, force: true });
  if (exitCode !== 0) {
    throw new CayError(
      'failed_precondition',
      `Cannot use overlay in "${dir}": ${stderr.trim().slice(0, 300)}`,
      {
        hint: 'it needs root and a disk that is no overlay itself',
      },
    );
  }
}

/** The root of an overlay is its upper directory: it must start like the parent's root. */
async function copyRootAttributes(from: string, to: string): Promise<void> {
  const { mode, uid, gid } = await stat(from);
  await chown(to, uid, gid);
  await chmod(to, mode & 0o7777);
}

/**
 * Copies everything of a tree: owners, times, links, holes, extended attributes, and the marks of overlayfs.
 */
async function copyTree(from: string, to: string): Promise<void> {
  const { exitCode, stderr } = await attempt(['cp', '-a', '--reflink=auto', '--sparse=auto', from, to], {
    timeoutMs: 3_600_000,
  });
  if (exitCode === 0) return;
  // The tree is in use: files that disappear while it is read are not part of the copy.
  const gone = /: No such file or directory$|as it was replaced while being copied$/;
  const lines = stderr.split('\n').filter((line) => line !== '');
  const other = lines.find((line) => !gone.test(line));
  if (other === undefined && lines.length > 0) return;
  const code = /No space left/.test(stderr) ? 'resource_exhausted' : 'internal';
  throw new CayError(code, `Cannot copy tree: ${(other ?? `exit code ${exitCode}`).slice(0, 500)}`);
}
