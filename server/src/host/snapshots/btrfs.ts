/**
 * Trees are btrfs subvolumes. A copy is a snapshot: it takes a few milliseconds whatever its size.
 *     <base>/trees/<name>     the subvolumes; committed ones are read-only
 *     <base>/records/<name>   their records
 *
 * The base is a subvolume in the given directory if that is on btrfs, otherwise a pool in a file. A snapshot
 * is one transaction of the filesystem, which also writes the record before it: after a power loss both
 * exist, or the record alone, or neither.
 */
import { chmod, mkdir, readdir, realpath, rmdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { isCayError } from '@cay/sdk/protocol';
import { btrfsDriver } from './btrfs-driver.ts';
import { command } from './command.ts';
import { openForest } from './forest.ts';
import type { StepHook } from './known-trees.ts';
import { pathExists } from '../../lib/path-exists.ts';
import { diskSpace } from './mounts.ts';
import { type Pool, openPool } from './pool.ts';
import { openQgroups } from './qgroups.ts';
import { openRecords } from './records.ts';
import type { Snapshotter } from './snapshotter.ts';
import { openSubvolumes } from './subvolumes.ts';

export interface BtrfsOptions {
  dir: string;
  /** Size of a new pool, where one is needed. */
  poolBytes?: number;
  maxPoolBytes?: number;
  /**
   * Turns quotas on. Default: only in a pool of our own, because counting slows a shared filesystem down.
   * Quotas that are on already are used.
   */
  enableQuota?: boolean;
  /** Interval of maintenance: growing the pool, recounting quotas. 0 means never. */
  tendEveryMs?: number;
  onStep?: StepHook;
}

export interface BtrfsSnapshotter extends Snapshotter {
  /**
   * Maintenance: grows the pool if it is nearly full, reserves metadata for a full disk, and removes what
   * deleted trees left. Also runs on a timer.
   */
  tend(): Promise<void>;
  /** Removes every tree, the mount, the loop device and the pool. */
  destroy(): Promise<void>;
}

/** The kernel allocates and writes a chunk of metadata within seconds. */
const RESERVE_EVERY_MS = 250;
const BTRFS_MAGIC = 0x9123683e;

export async function openBtrfs(options: BtrfsOptions): Promise<BtrfsSnapshotter> {
  const { onStep, tendEveryMs = 15_000 } = options;
  await mkdir(options.dir, { recursive: true });
  const dir = await realpath(options.dir);
  const pool = (await isBtrfs(dir)) ? undefined : await makePool();
  const base = pool?.path ?? (await makeBase(join(dir, 'pool')));
  const treesDir = join(base, 'trees');
  // Only root reaches a tree by its path; sandboxes have it mounted.
  await chmod(base, 0o700);
  await mkdir(treesDir, { recursive: true, mode: 0o700 });
  const qgroups = await openQgroups(base, { enable: options.enableQuota ?? pool !== undefined });
  const subvolumes = await openSubvolumes(base, treesDir);

  function makePool(): Promise<Pool> {
    const { poolBytes: sizeBytes, maxPoolBytes: maxBytes } = options;
    return openPool({ dir, onStep, ...(sizeBytes && { sizeBytes }), ...(maxBytes && { maxBytes }) });
  }

  const driver = btrfsDriver({ treesDir, qgroups, subvolumes, onStep });
  const records = await openRecords(join(base, 'records'));
  const forest = await openForest({
    driver,
    records,
    driverName: 'btrfs',
    quota: qgroups !== undefined,
    onStep,
  });
  let closed = false;
  let tending: Promise<void> | undefined;
  let reserving: Promise<void> | undefined;
  await tend();
  // Errors are ignored, and the timer keeps no process alive: a failure shows again in the verb that it
  // affects.
  const timer =
    tendEveryMs > 0 ? setInterval(() => void tend().catch(() => {}), tendEveryMs).unref() : undefined;
  const reserver =
    pool && tendEveryMs > 0
      ? setInterval(() => void reserve().catch(() => {}), RESERVE_EVERY_MS).unref()
      : undefined;

  function reserve(): Promise<void> {
    reserving ??= (async () => {
      // Ignore a full disk: space may be freed later.
      if (!closed) await pool?.reserve().catch(ignoreFull);
    })().finally(() => {
      reserving = undefined;
    });
    return reserving;
  }

  function tend(): Promise<void> {
    tending ??= work().finally(() => {
      tending = undefined;
    });
    return tending;

    async function work(): Promise<void> {
      if (closed) return;
      await pool?.grow();
      await reserve();
      await qgroups?.recount();
      // On a shared filesystem a quota group without a subvolume may be intended.
      if (pool) await qgroups?.sweep(() => subvolumes.everyId());
    }
  }

  async function stop(): Promise<void> {
    closed = true;
    clearInterval(timer);
    clearInterval(reserver);
    await Promise.allSettled([tending, reserving]);
  }

  return {
    name: 'btrfs',
    capabilities: { quota: qgroups !== undefined, instant: true, incremental: true },
    ...forest.trees,
    tend,

    async space() {
      if (pool) return pool.space();
      return diskSpace(base);
    },

    async close() {
      await stop();
      if (!pool || (await forest.trees.list()).some(({ kind }) => kind === 'active')) return;
      // A reader of a committed tree keeps the mount busy; the next open adopts it.
      await pool.unmount().catch(() => {});
    },

    async destroy() {
      await stop();
      if (pool) return pool.destroy();
      for (const name of await readdir(treesDir)) await subvolumes.remove(name);
      await command(['btrfs', 'subvolume', 'delete', base]);
      // The directory may hold files of others.
      await rmdir(dir).catch(() => {});
    },
  };
}

/** A subvolume of our own on an existing btrfs: its direct children are our trees. */
async function makeBase(path: string): Promise<string> {
  if (!(await pathExists(path))) await command(['btrfs', 'subvolume', 'create', path]);
  return path;
}

export async function isBtrfs(path: string): Promise<boolean> {
  return (await statfs(path)).type === BTRFS_MAGIC;
}

function ignoreFull(error: unknown): void {
  if (!isCayError(error, 'resource_exhausted')) throw error;
}
