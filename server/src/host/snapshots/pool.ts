/**
 * A btrfs filesystem in a sparse file, for disks with another filesystem.
 *
 * The file uses as much space as its content; deleted content is returned to the disk (discard). The loop
 * device is marked for automatic removal with its mount, so an unclean end leaves only the mount itself,
 * which the next `openPool` adopts.
 */
import { poll } from '../../lib/poll.ts';
import { constants } from 'node:fs';
import { mkdir, open, realpath, rename, rm, rmdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { pathExists } from '../../lib/path-exists.ts';
import { attempt, command } from './command.ts';
import type { StepHook } from './known-trees.ts';
import { listMounts, loopsOf, sysfsOf, type Mount } from './mounts.ts';
import { allocationOf, reserveMetadata, type Range } from './reserve-metadata.ts';

export interface PoolOptions {
  dir: string;
  /**
   * Size of a new pool. Default: 64 GiB or 80 % of the free space, whichever is more and the disk can hold.
   */
  sizeBytes?: number;
  /** The pool grows up to this. Default: what the disk can hold. */
  maxBytes?: number;
  onStep?: StepHook | undefined;
}

export interface Pool {
  /** Where it is mounted. */
  readonly path: string;
  space(): Promise<{ totalBytes: number; freeBytes: number }>;
  /** Grows the pool if it is nearly full and the disk has space. Resolves whether it did. */
  grow(): Promise<boolean>;
  /**
   * Makes sure that a full disk does not turn the pool read-only. Cheap while the pool has allocated no more
   * of its file since the last call, so it can be called often. Rejects if the disk is too full already.
   */
  reserve(): Promise<void>;
  unmount(): Promise<void>;
  destroy(): Promise<void>;
}

const GIB = 1024 ** 3;
const MIN_BYTES = 256 * 1024 ** 2;
/** With less than this free on the disk, space for a chunk of metadata is reserved in advance. */
const SHORT_BYTES = 4 * GIB;
/** Files of a sandbox must not act as programs or devices on the host. */
const KEPT_OUT = ['nosuid', 'nodev'];
const MOUNT_OPTIONS = [...KEPT_OUT, 'noatime', 'discard=async'].join(',');

export async function openPool({ dir: givenDir, sizeBytes, maxBytes, onStep }: PoolOptions): Promise<Pool> {
  const step = async (name: string): Promise<void> => onStep?.(name);
  await mkdir(givenDir, { recursive: true });
  const dir = await realpath(givenDir);
  const file = join(dir, 'pool.btrfs');
  const path = join(dir, 'pool');
  let reserved: Range[] = [];
  let reservedFor = '';

  const mounted = await mountAt(path);
  if (mounted) await keepOut(mounted);
  else {
    const fresh = !(await pathExists(file));
    if (fresh) await format();
    try {
      await mount();
    } catch (error) {
      // A kernel that cannot mount it has no use for it, and the directory must not look like a pool.
      if (fresh) await rm(file, { force: true });
      throw error;
    }
  }

  const kernelDir = await sysfsOf(path);

  /** A pool gets its name only when it is a complete filesystem. */
  async function format(): Promise<void> {
    const { free } = await disk(dir);
    const size = sizeBytes ?? Math.min(Math.max(64 * GIB, Math.floor(free * 0.8)), usable(free));
    if (size < MIN_BYTES || size > usable(free)) {
      throw new CayError(
        'failed_precondition',
        `Cannot make a pool of ${size} bytes in "${dir}": ${free} bytes are free`,
        {
          hint: `A pool needs at least ${MIN_BYTES} bytes`,
        },
      );
    }
    const next = `${file}.new`;
    await rm(next, { force: true });
    await step('pool:create');
    await resize(next, size, true);
    await step('pool:mkfs');
    await command(['mkfs.btrfs', '-q', '-f', '-m', 'single', '-L', 'cay', next]);
    await step('pool:rename');
    await rename(next, file);
  }

  async function mount(): Promise<void> {
    await mkdir(path, { recursive: true, mode: 0o700 });
    await step('pool:mount');
    const [loop] = await loopsOf(file);
    if (loop === undefined) {
      await command(['mount', '-t', 'btrfs', '-o', `loop,${MOUNT_OPTIONS}`, file, path]);
      return;
    }
    // The loop device of an earlier server, or one that another mount namespace holds. A second device on the
    // same file would corrupt it.
    await command(['mount', '-t', 'btrfs', '-o', MOUNT_OPTIONS, loop, path]);
    // Detaching a device in use marks it for removal with its last user.
    await attempt(['losetup', '-d', loop]);
  }

  async function unmount(): Promise<void> {
    while (await mountAt(path)) await command(['umount', path]);
    // The kernel releases the device a moment after the mount.
    let rounds = 0;
    await poll(
      async () => {
        const loops = await loopsOf(file);
        if (++rounds % 10 === 0) for (const loop of loops) await attempt(['losetup', '-d', loop]);
        return loops.length === 0 || undefined;
      },
      { timeoutMs: 5_000, delayMs: 25 },
    );
  }

  return {
    path,

    async space() {
      const [inside, { free }] = await Promise.all([disk(path), disk(dir)]);
      return { totalBytes: inside.total, freeBytes: Math.min(inside.free, free) };
    },

    async grow() {
      const [inside, outside, { size, blocks }] = await Promise.all([disk(path), disk(dir), stat(file)]);
      const unfinished = size > inside.total;
      if (inside.free > inside.total * 0.15 && !unfinished) return false;
      const limit = Math.min(usable(outside.free) + blocks * 512, maxBytes ?? Number.MAX_SAFE_INTEGER);
      const next = unfinished ? size : Math.floor(Math.min(size * 2, limit) / 4096) * 4096;
      // Growing in small steps would never end on a disk that fills up.
      if (next < inside.total * 1.1) return false;
      const [loop] = await loopsOf(file);
      if (loop === undefined) return false;
      await step('pool:extend');
      await resize(file, next, false);
      await step('pool:refresh');
      await command(['losetup', '-c', loop]);
      await step('pool:resize');
      await command(['btrfs', 'filesystem', 'resize', 'max', path]);
      return true;
    },

    async reserve() {
      const [{ free }, allocation] = await Promise.all([disk(dir), allocationOf(kernelDir)]);
      const ahead = free < SHORT_BYTES;
      if (reservedFor === `${allocation} ${ahead}`) return;
      reserved = await reserveMetadata({ file, path, ahead, before: reserved });
      reservedFor = `${allocation} ${ahead}`;
    },

    unmount,

    async destroy() {
      await unmount();
      await rm(file, { force: true });
      await rm(`${file}.new`, { force: true });
      await rmdir(path).catch(() => {});
      // The directory may hold files of others.
      await rmdir(dir).catch(() => {});
    },
  };
}

/** Leave some space: a pool on a full disk cannot write even to delete. */
function usable(free: number): number {
  return Math.floor(free * 0.95);
}

async function disk(path: string): Promise<{ total: number; free: number }> {
  const { bsize, blocks, bavail } = await statfs(path);
  return { total: bsize * blocks, free: bsize * bavail };
}

async function mountAt(path: string): Promise<Mount | undefined> {
  return (await listMounts()).findLast((mount) => mount.path === path && mount.type === 'btrfs');
}

/** An earlier version mounted it without these options. What runs on it already is not affected. */
async function keepOut({ path, options }: Mount): Promise<void> {
  if (KEPT_OUT.every((option) => options.includes(option))) return;
  await command(['mount', '-o', ['remount', 'bind', ...options, ...KEPT_OUT].join(','), path]);
}

async function resize(file: string, size: number, create: boolean): Promise<void> {
  const handle = await open(file, create ? 'wx' : constants.O_RDWR, 0o600);
  try {
    await handle.truncate(size);
    await handle.sync();
  } finally {
    await handle.close();
  }
}
