/** The operations of a Snapshotter on datasets and snapshots of ZFS; `zfs.ts` says how they are named. */
import { stat } from 'node:fs/promises';
import { CayError } from '@cay/sdk/protocol';
import { command } from './command.ts';
import { compareTrees } from './compare/compare-trees.ts';
import { listDatasets, listSnapshots, markGone, readProperties, tryZfs, whenFree, zfs } from './datasets.ts';
import type { StepHook } from './known-trees.ts';
import { isMountPoint } from './mounts.ts';
import { isThere, zfsMounts } from './zfs-mounts.ts';
import type { TreeRecord } from './records.ts';
import type { TreeDriver } from './tree-driver.ts';

export interface ZfsDriver extends TreeDriver {
  hasActive(): boolean;
  /** Removes the clones that show committed trees. */
  dropViews(): Promise<void>;
  unmountActive(): Promise<void>;
}

export interface ZfsDriverOptions {
  /** Our dataset, and where it is mounted. */
  base: string;
  home: string;
  /** Whether files have coarse times, as with FUSE. */
  coarse: boolean;
  onStep: StepHook | undefined;
}

export function zfsDriver({ base, home, coarse, onStep }: ZfsDriverOptions): ZfsDriver {
  const { at, viewOf, mount, unmount, dropView } = zfsMounts(base, home);
  const step = async (name: string): Promise<void> => onStep?.(name);
  /** Datasets of active trees by key, and of committed ones by name. */
  const heads = new Map<string, string>();
  const commits = new Map<string, string>();
  const gone = new Set<string>();
  let next = 0;

  const snapshotOf = (name: string): string => `${commits.get(name)}@c-${name}`;
  const limitOf = ({ quotaBytes, baseBytes = 0 }: TreeRecord): string =>
    quotaBytes === undefined || quotaBytes === null ? 'none' : String(quotaBytes + baseBytes);

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

  const driver: ZfsDriver = {
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

    async repair(name, record) {
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

    hasActive: () => heads.size > 0,

    async dropViews() {
      for (const name of commits.keys()) await dropView(name);
    },

    async unmountActive() {
      for (const dataset of heads.values()) await unmount(dataset);
    },
  };
  return driver;
}
