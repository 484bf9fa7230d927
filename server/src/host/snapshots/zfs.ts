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
import { chmod, mkdir, readlink, realpath, rm, rmdir, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { command } from './command.ts';
import { compareTrees } from './compare/compare-trees.ts';
import {
  destroyBelow,
  listDatasets,
  listSnapshots,
  markGone,
  OWNER,
  readOwner,
  readProperties,
  tryZfs,
  whenFree,
  zfs,
} from './datasets.ts';
import { type TreeDriver, openForest, type StepHook } from './forest.ts';
import { isMountPoint, mountOf } from './mounts.ts';
import { openRecords, type TreeRecord } from './records.ts';
import type { Snapshotter } from './snapshotter.ts';

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
  const step = async (name: string): Promise<void> => onStep?.(name);
  await mkdir(options.dir, { recursive: true });
  const dir = await realpath(options.dir);
  const home = join(dir, 'pool');
  const base = await openBase(dir, home, options.dataset);
  // Only root reaches a tree by its path; sandboxes have it mounted.
  await chmod(home, 0o700);
  const coarse = (await mountOf(home))?.type !== 'zfs';
  /** Datasets of active trees by key, and of committed ones by name. */
  const heads = new Map<string, string>();
  const commits = new Map<string, string>();
  const gone = new Set<string>();
  let next = 0;

  const at = (dataset: string): string => join(home, dataset.slice(base.length + 1));
  const viewOf = (name: string): string => `${base}/v-${name}`;
  const snapshotOf = (name: string): string => `${commits.get(name)}@c-${name}`;
  const limitOf = ({ quotaBytes, baseBytes = 0 }: TreeRecord): string =>
    quotaBytes === undefined || quotaBytes === null ? 'none' : String(quotaBytes + baseBytes);

  async function mount(dataset: string): Promise<string> {
    const path = at(dataset);
    if (await isMountPoint(path)) return path;
    const { exitCode } = await tryZfs('mount', dataset);
    if (exitCode !== 0 && !(await isMountPoint(path))) await whenFree('mount', dataset);
    return path;
  }

  async function unmount(dataset: string): Promise<void> {
    if (await isMountPoint(at(dataset))) await zfs('unmount', dataset);
    await rmdir(at(dataset)).catch(() => {});
  }

  async function dropView(name: string): Promise<void> {
    if (!(await isThere(viewOf(name)))) return;
    await unmount(viewOf(name));
    await whenFree('destroy', viewOf(name));
  }

  /**
   * Frees what a removed dataset holds beyond its snapshots, and destroys the dataset with the last of them.
   */
  async function reclaim(dataset: string): Promise<void> {
    const snapshots = await listSnapshots(dataset);
    if (snapshots.length === 0) {
      await whenFree('destroy', dataset);
      gone.delete(dataset);
      return;
    }
    // Only the newest snapshot can be rolled back to; ZFS refuses any other.
    for (const snapshot of snapshots.reverse()) {
      const { exitCode } = await tryZfs('rollback', snapshot);
      if (exitCode === 0) return;
    }
  }

  const driver: TreeDriver = {
    async trees() {
      for (const { name, gone: isGone } of await listDatasets(base)) {
        const [, key, number, , committed] = /\/t-([a-z0-9_-]+)\.(\d+)(@c-([a-z0-9_-]+))?$/.exec(name) ?? [];
        const dataset = name.replace(/@.*/, '');
        if (key === undefined) continue;
        next = Math.max(next, Number(number) + 1);
        if (committed !== undefined) commits.set(committed, dataset);
        else if (isGone) gone.add(dataset);
        else if (heads.has(key))
          throw new CayError(
            'internal',
            `Two datasets hold tree "${key}": "${heads.get(key)}" and "${name}"`,
          );
        else heads.set(key, dataset);
      }
      // Views, and removed trees, that a killed server left.
      for (const { name } of await listDatasets(base)) {
        const [, view] = /\/v-([a-z0-9_-]+)$/.exec(name) ?? [];
        if (view !== undefined) await dropView(view).catch(() => {});
      }
      for (const dataset of gone) {
        await unmount(dataset);
        await reclaim(dataset);
      }
      return [...heads.keys(), ...commits.keys()];
    },

    async mend(name, record) {
      if (record.kind !== 'active') return;
      const [limit] = await readProperties(heads.get(name)!, 'refquota');
      if (limit !== limitOf(record).replace('none', '0')) await driver.limit(name, record);
    },

    async plan(record) {
      if (record.kind !== 'active' || record.parent === undefined) return record;
      const [referenced] = await readProperties(snapshotOf(record.parent), 'referenced');
      return { ...record, baseBytes: Number(referenced) };
    },

    async make(key, record) {
      await driver.drop(key, record);
      const dataset = `${base}/t-${key}.${next++}`;
      const properties = ['-o', 'canmount=noauto', '-o', `refquota=${limitOf(record)}`];
      if (record.parent === undefined) await zfs('create', ...properties, dataset);
      else await zfs('clone', ...properties, snapshotOf(record.parent), dataset);
      heads.set(key, dataset);
      await step('prepare:mount');
      await mount(dataset);
    },

    async copy(name, key, record) {
      if (commits.has(name)) await driver.drop(name, record);
      const dataset = heads.get(key)!;
      await zfs('snapshot', `${dataset}@c-${name}`);
      commits.set(name, dataset);
    },

    async drop(name) {
      const head = heads.get(name);
      if (head !== undefined) {
        await unmount(head);
        await step('remove:mark');
        await markGone(head);
        heads.delete(name);
        gone.add(head);
        await step('remove:reclaim');
        await reclaim(head);
      }
      const dataset = commits.get(name);
      if (dataset === undefined) return;
      await dropView(name);
      await step('remove:destroy');
      await whenFree('destroy', snapshotOf(name));
      commits.delete(name);
      await step('remove:reclaim');
      if (gone.has(dataset)) await reclaim(dataset);
    },

    path: (key) => mount(heads.get(key)!),

    async committedPath(name) {
      const view = viewOf(name);
      if (!(await isMountPoint(at(view))) && !(await isThere(view))) {
        await zfs('clone', '-o', 'canmount=noauto', '-o', 'readonly=on', snapshotOf(name), view);
      }
      await step('view:mount');
      const path = await mount(view);
      // With ZFS on FUSE the property stops files from being created and removed, but not from being written.
      await command(['mount', '-o', 'remount,bind,ro', path]);
      return path;
    },

    async compare({ path: from }, { path: to }, signal) {
      const born = (await stat(from, { bigint: true })).birthtimeNs > 0n;
      return compareTrees({
        from,
        to,
        identity: born ? 'inode' : 'reused-inode',
        coarseTimes: coarse,
        signal,
      });
    },

    async limit(key, record) {
      await zfs('set', `refquota=${limitOf(record)}`, heads.get(key)!);
    },

    async written(key) {
      const [used] = await readProperties(heads.get(key)!, 'used');
      return Number(used);
    },

    async usage(name, { kind }) {
      const [used] = await (kind === 'active'
        ? readProperties(heads.get(name)!, 'usedbydataset')
        : readProperties(snapshotOf(name), 'used'));
      return Number(used);
    },
  };

  const records = await openRecords(join(home, 'records'));
  const forest = await openForest({ driver, records, driverName: 'zfs', quota: true, onStep });

  async function dropViews(): Promise<void> {
    for (const name of commits.keys()) await dropView(name);
  }

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
      await dropViews().catch(() => {});
      if (heads.size === 0) await tryZfs('unmount', base);
    },

    async destroy() {
      await dropViews();
      for (const dataset of heads.values()) await unmount(dataset);
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
        hint: 'Name a dataset, or put the folder on one',
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

async function isThere(dataset: string): Promise<boolean> {
  return (await tryZfs('list', '-H', '-o', 'name', dataset)).exitCode === 0;
}
