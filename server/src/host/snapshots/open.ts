import { mkdir, readdir } from 'node:fs/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { isBtrfs, openBtrfs } from './btrfs.ts';
import { openOverlay } from './overlay.ts';
import type { Snapshotter } from './snapshotter.ts';
import { isZfs, openZfs, ZFS_MARKER } from './zfs.ts';

/** In the order of preference. */
const SNAPSHOTTER_NAMES = ['zfs', 'btrfs', 'overlay'] as const;

export interface OpenSnapshotterOptions {
  /** Directory for the trees, or for the pool that holds them. */
  dir: string;
  /**
   * "zfs", "btrfs" or "overlay". Default: the best that works here. "zfs:<dataset>" puts the trees below that
   * dataset, wherever the directory is.
   */
  name?: string;
  /** Size of a new pool, where one is needed. */
  poolBytes?: number;
}

/**
 * Opens the named snapshotter, or the best that works: ZFS or btrfs if the directory is on it, else a btrfs
 * pool in a file, else overlay. The choice is permanent: a directory with trees of one driver is not opened
 * by another, because its trees would seem to be gone.
 */
export async function openSnapshotter(options: OpenSnapshotterOptions): Promise<Snapshotter> {
  const { dir } = options;
  const [, name = options.name, dataset] = /^(zfs):(.+)$/.exec(options.name ?? '') ?? [];
  const drivers = {
    zfs: () => openZfs({ dir, ...(dataset !== undefined && { dataset }) }),
    btrfs: () => openBtrfs({ dir, ...(options.poolBytes !== undefined && { poolBytes: options.poolBytes }) }),
    overlay: () => openOverlay({ dir }),
  };
  if (name !== undefined) {
    if (!isName(name)) {
      throw new CayError('unsupported', `No snapshotter "${name}"`, {
        hint: `there are ${SNAPSHOTTER_NAMES.join(', ')}`,
      });
    }
    return asked(name, drivers[name]);
  }

  await mkdir(dir, { recursive: true });
  const kept = await keptKind(dir);
  if (kept) return asked(kept, drivers[kept]);
  const reasons: Record<string, string> = {};
  for (const candidate of SNAPSHOTTER_NAMES) {
    try {
      return await drivers[candidate]();
    } catch (error) {
      reasons[candidate] = systemReason(error);
      // If the disk has this filesystem and the driver still fails, another driver would only hide the fault.
      if (await LIES_ON[candidate](dir)) throw error;
    }
  }
  throw new CayError('failed_precondition', `No snapshotter works in "${dir}"`, {
    details: { reasons },
    hint: `run as root, and install btrfs-progs (${Object.values(reasons).join('; ')})`,
  });
}

const LIES_ON = { zfs: isZfs, btrfs: isBtrfs, overlay: async () => false };

/** The driver whose trees are in the directory, if any. */
async function keptKind(dir: string): Promise<(typeof SNAPSHOTTER_NAMES)[number] | undefined> {
  const names = await readdir(dir);
  if (names.includes(ZFS_MARKER)) return 'zfs';
  if (names.includes('pool.btrfs') || (names.includes('pool') && (await isBtrfs(dir)))) return 'btrfs';
  return names.includes('trees') && names.includes('records') ? 'overlay' : undefined;
}

async function asked(name: string, open: () => Promise<Snapshotter>): Promise<Snapshotter> {
  try {
    return await open();
  } catch (error) {
    const reason = systemReason(error);
    if (isCayError(error) && error.code !== 'internal') throw error;
    throw new CayError('failed_precondition', `Cannot open snapshotter "${name}": ${reason}`, {
      cause: error,
    });
  }
}

function isName(name: string): name is (typeof SNAPSHOTTER_NAMES)[number] {
  return (SNAPSHOTTER_NAMES as readonly string[]).includes(name);
}
