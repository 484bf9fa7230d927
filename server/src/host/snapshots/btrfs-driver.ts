/** Trees as subvolumes, one verb each; `forest.ts` has the order of steps and the records. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { pathExists } from '../../lib/path-exists.ts';
import { attempt, command } from './command.ts';
import { compareTrees } from './compare/compare-trees.ts';
import type { StepHook } from './known-trees.ts';
import type { Qgroups } from './qgroups.ts';
import type { TreeRecord } from './records.ts';
import { sendChanges } from './send-changes.ts';
import type { Subvolumes } from './subvolumes.ts';
import type { TreeDriver } from './tree-driver.ts';

export interface BtrfsDriverOptions {
  treesDir: string;
  /** Absent: quotas are off. */
  qgroups: Qgroups | undefined;
  subvolumes: Subvolumes;
  onStep?: StepHook | undefined;
}

export function btrfsDriver({ treesDir, qgroups, subvolumes, onStep }: BtrfsDriverOptions): TreeDriver {
  const at = (name: string): string => join(treesDir, name);

  const limitOf = ({ quotaBytes, baseBytes = 0 }: TreeRecord): number | null =>
    quotaBytes === undefined || quotaBytes === null ? null : quotaBytes + baseBytes;

  const driver: TreeDriver = {
    trees: () => readdir(treesDir),

    async repair(name, record) {
      if (!qgroups || record.kind !== 'active' || limitOf(record) === null) return;
      if ((await qgroups.limitOf(await subvolumes.id(name))) !== limitOf(record))
        await driver.limit(name, record);
    },

    async plan(record) {
      if (!qgroups || record.kind !== 'active' || record.parent === undefined) return record;
      return { ...record, baseBytes: await qgroups.base(await subvolumes.id(record.parent)) };
    },

    async make(key, record) {
      // `btrfs subvolume snapshot` would put the copy inside an existing directory.
      if (await pathExists(at(key))) await subvolumes.remove(key);
      if (record.parent !== undefined)
        return subvolumes.copy(record.parent, key, { readOnly: false, limit: limitOf(record) });
      await command(['btrfs', 'subvolume', 'create', at(key)]);
      await onStep?.('prepare:limit');
      if (limitOf(record) !== null) await driver.limit(key, record);
    },

    async copy(name, key) {
      if (await pathExists(at(name))) await subvolumes.remove(name);
      await subvolumes.copy(key, name, { readOnly: true, limit: null });
    },

    async drop(name) {
      if (await pathExists(at(name))) await subvolumes.remove(name);
    },

    path: async (key) => at(key),

    committedPath: async (name) => at(name),

    async compare({ path: from }, { path: to }, signal) {
      return (
        (await sendChanges({ from, to, signal })) ?? compareTrees({ from, to, identity: 'inode', signal })
      );
    },

    async limit(key, record) {
      await qgroups?.limit(at(key), limitOf(record));
    },

    async written(key, { baseBytes = 0 }) {
      if (!qgroups) return undefined;
      const id = await subvolumes.id(key);
      // Simple quotas count bytes written, ordinary quotas count bytes referenced.
      if (qgroups.mode === 'squota') return (await qgroups.exclusive(id)) ?? 0;
      return Math.max(0, (await qgroups.base(id)) - baseBytes);
    },

    async usage(name) {
      const counted = await qgroups?.exclusive(await subvolumes.id(name));
      return counted ?? walkUsage(at(name));
    },
  };
  return driver;
}

/** Without quotas all extents of the tree must be read. */
async function walkUsage(path: string): Promise<number> {
  const { stdout } = await attempt(['btrfs', 'filesystem', 'du', '-s', '--raw', path], {
    timeoutMs: 600_000,
  });
  const [, exclusive] = /^\s*\d+\s+(\d+)/m.exec(stdout) ?? [];
  if (exclusive === undefined) throw new CayError('internal', `Cannot tell the size of "${path}"`);
  return Number(exclusive);
}
