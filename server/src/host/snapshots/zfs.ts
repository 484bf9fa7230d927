/**
 * Trees are ZFS datasets and their snapshots. A copy takes the same time whatever its size.
 *     <base>                      our dataset, mounted at <dir>/pool; holds the records
 *     <base>/t-<key>.<n>          an active tree; <n> differs from earlier trees with the same key
 *     <base>/t-<key>.<n>@c-<name> a committed tree
 *     <base>/v-<name>             a read-only clone of a committed tree, while it is in use
 *     <dir>/pool.zfs              a symlink that names the dataset <base>
 *
 * A snapshot cannot exist without its dataset. So an active tree that is removed while commits of it remain
 * is marked as removed and unmounted, and its files are rolled back to its last snapshot, which frees later
 * writes. It is destroyed with its last snapshot.
 *
 * Everything is done in transactions of the whole pool, in order: after a power loss the record of a tree
 * exists if the tree does.
 */
import { createHash } from 'node:crypto';
import { chmod, mkdir, readlink, realpath, rm, rmdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { destroyBelow, OWNER, readOwner, readProperties, tryZfs, whenFree, zfs } from './datasets.ts';
import { openForest } from './forest.ts';
import type { StepHook } from './known-trees.ts';
import { isMountPoint, mountOf } from './mounts.ts';
import { openRecords } from './records.ts';
import type { Snapshotter } from './snapshotter.ts';
import { zfsDriver } from './zfs-driver.ts';

export interface ZfsOptions {
  dir: string;
  /** The parent of our dataset. Default: the dataset that holds the directory. */
  dataset?: string;
  onStep?: StepHook;
}

/** The symlink that names our dataset. */
export const ZFS_MARKER = 'pool.zfs';

export async function openZfs(options: ZfsOptions): Promise<Snapshotter> {
  const { onStep } = options;
  await mkdir(options.dir, { recursive: true });
  const dir = await realpath(options.dir);
  const home = join(dir, 'pool');
  const base = await openBase(dir, home, options.dataset);
  // Only root reaches a tree by its path; sandboxes have it mounted.
  await chmod(home, 0o700);
  const coarse = (await mountOf(home))?.type !== 'zfs';
  const driver = zfsDriver({ base, home, coarse, onStep });
  const records = await openRecords(join(home, 'records'));
  const forest = await openForest({ driver, records, driverName: 'zfs', quota: true, onStep });

  return {
    name: 'zfs',
    capabilities: { quota: true, instant: true, incremental: false },
    ...forest.trees,

    async space() {
      const [used, available] = await readProperties(base, 'used', 'available');
      return { totalBytes: Number(used) + Number(available), freeBytes: Number(available) };
    },

    async close() {
      // A reader of a committed tree keeps its clone busy; the next open removes it.
      await driver.dropViews().catch(() => {});
      if (!driver.hasActive()) await tryZfs('unmount', base);
    },

    async destroy() {
      await driver.dropViews();
      await driver.unmountActive();
      await destroyBelow(base);
      await zfs('unmount', base);
      await whenFree('destroy', base);
      await rm(join(dir, ZFS_MARKER), { force: true });
      await rmdir(home).catch(() => {});
      // The directory may hold files of others.
      await rmdir(dir).catch(() => {});
    },
  };
}

/** Whether the directory is on ZFS, through the kernel module or FUSE. */
export async function isZfs(path: string): Promise<boolean> {
  return isZfsMount((await mountOf(await realpath(path)))?.type);
}

/** Finds or creates our dataset, and mounts it at `home`. */
async function openBase(dir: string, home: string, given: string | undefined): Promise<string> {
  const marker = join(dir, ZFS_MARKER);
  const kept = await readlink(marker).catch(() => undefined);
  const mount = await mountOf(dir);
  const above = given ?? (isZfsMount(mount?.type) ? mount!.source : undefined);
  if (kept === undefined && above === undefined) {
    throw new CayError(
      'failed_precondition',
      `Cannot use ZFS in "${dir}": the folder is on "${mount?.type ?? 'nothing'}"`,
      {
        hint: 'name a dataset, or put the folder on one',
      },
    );
  }
  const base = kept ?? `${above}/cay-${createHash('sha256').update(dir).digest('hex').slice(0, 12)}`;
  const owner = await readOwner(base);
  if (owner !== undefined && owner !== dir) {
    throw new CayError('failed_precondition', `Cannot use dataset "${base}": it belongs to "${owner}"`);
  }
  // Written first: a dataset without the marker would be lost.
  if (kept === undefined) await symlink(base, marker);
  if (owner === undefined) {
    await zfs(
      'create',
      '-o',
      'canmount=noauto',
      '-o',
      `mountpoint=${home}`,
      '-o',
      'atime=off',
      '-o',
      `${OWNER}=${dir}`,
      base,
    );
  }
  // Inherited by all trees: files of a sandbox must not act as programs or devices on the host.
  for (const property of ['setuid', 'devices']) {
    if ((await readProperties(base, property))[0] !== 'off') await zfs('set', `${property}=off`, base);
  }
  if (!(await isMountPoint(home))) await whenFree('mount', base);
  return base;
}

function isZfsMount(type: string | undefined): boolean {
  return type === 'zfs' || type === 'fuse.zfs';
}
