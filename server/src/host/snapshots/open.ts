import { mkdir, readdir } from 'node:fs/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { isBtrfs, openBtrfs } from './btrfs.ts';
import { openOverlay } from './overlay.ts';
import type { Snapshotter } from './snapshotter.ts';
import { isZfs, openZfs, ZFS_MARKER } from './zfs.ts';

/** In the order of trying. */
const SNAPSHOTTER_NAMES = ['zfs', 'btrfs', 'overlay'] as const;

export interface OpenSnapshotterOptions {
  /** Folder for the trees, or for the pool that holds them. */
  dir: string;
  /**
   * "zfs", "btrfs" or "overlay". Default: the best that works here. "zfs:<dataset>" puts the trees below that
   * dataset, wherever the folder is.
   */
  name?: string;
  /** Size of a new pool, where one is needed. */
  poolBytes?: number;
}

/**
 * Opens the snapshotter of that name, or the best that really works: ZFS or btrfs where the folder lies
 * on it, else a btrfs pool in a file, else overlay. What was chosen once stays: a folder that has
 * trees of one driver is not opened by another unasked, since they would seem to be gone.
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
        hint: `There are ${SNAPSHOTTER_NAMES.join(', ')}`,
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
      reasons[candidate] = error instanceof Error ? error.message : String(error);
      // A disk that is of this kind and refuses has a fault that another driver would only hide.
      if (await LIES_ON[candidate](dir)) throw error;
    }
  }
  throw new CayError('failed_precondition', `No snapshotter works in "${dir}"`, {
    details: { reasons },
    hint: `Run as root, and install btrfs-progs (${Object.values(reasons).join('; ')})`,
  });
}

const LIES_ON = { zfs: isZfs, btrfs: isBtrfs, overlay: async () => false };

/** Which driver's trees are in the folder, if any. */
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
    const reason = error instanceof Error ? error.message : String(error);
    if (isCayError(error) && error.code !== 'internal') throw error;
    throw new CayError('failed_precondition', `Cannot open snapshotter "${name}": ${reason}`, {
      cause: error,
    });
  }
}

function isName(name: string): name is (typeof SNAPSHOTTER_NAMES)[number] {
  return (SNAPSHOTTER_NAMES as readonly string[]).includes(name);
}
