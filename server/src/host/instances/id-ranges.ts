/**
 * A range of host ids for each instance, so that no two sandboxes share a user id on the host.
 *
 * Trees are stored with one range. An idmapped mount shows the tree to the runtime with the instance's own
 * range. A range is taken by creating a symlink, named by the first id, to the instance's directory. All
 * servers of one machine share the directory of links, so they never take the same range; it is empty after a
 * reboot.
 */
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  unlinkSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { IdMapping } from '../runtimes/runtime.ts';

export interface IdRanges {
  /**
   * Takes a range for the instance in that directory, which must exist. Throws `resource_exhausted` if none
   * is free.
   */
  claim(dir: string): IdMapping;
  /** Records that the instance in that directory has that range, as an earlier server chose. */
  keep(dir: string, ids: IdMapping): void;
  /** Releases the range of the instance. Does nothing if it has none. */
  release(dir: string): void;
}

export interface IdRangesOptions {
  /** The directory of all instances of this installation. */
  instancesDir: string;
  /** The directory of links. */
  registry?: string;
  areas?: readonly Area[];
  /** Files that list the ids of the machine's accounts (subuid, subgid). */
  subordinate?: readonly string[];
}

/** Number of adjacent ranges. */
interface Area {
  from: number;
  count: number;
}

const SIZE = 65_536;

/**
 * Above the ids that directory services assign by default (2,000,200,000) and below the range that systemd
 * reserves for foreign images. When all are taken: above 2,147,483,648, up to the last ids, which mean
 * "nobody" and "none".
 */
const AREAS: readonly Area[] = [
  { from: 0x7740_0000, count: 0x08be },
  { from: 0x8000_0000, count: 0x7ffe },
];

const REGISTRY = '/run/cay/ids';
const SUBORDINATE = ['/etc/subuid', '/etc/subgid'];

export function openIdRanges(options: IdRangesOptions): IdRanges {
  const { instancesDir, registry = REGISTRY, areas = AREAS, subordinate = SUBORDINATE } = options;
  const taken = new Map<string, number>();
  const foreign = subordinate.flatMap(subordinateRanges);
  const link = (hostId: number) => join(registry, String(hostId));
  mkdirSync(registry, { recursive: true, mode: 0o700 });
  survey();

  /** Ranges that an earlier server has taken, and ranges of instances whose directory is gone. */
  function survey(): void {
    for (const name of readdirSync(registry)) {
      const path = join(registry, name);
      const target = targetOf(path);
      if (target === undefined) continue;
      if (!existsSync(path)) remove(path);
      else if (dirname(target) === instancesDir) taken.set(basename(target), Number(name));
    }
  }

  const owner = (dir: string) => join(instancesDir, basename(dir));

  /** True if it was free. */
  function take(dir: string, hostId: number): boolean {
    try {
      symlinkSync(owner(dir), link(hostId));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    }
    taken.set(basename(dir), hostId);
    return true;
  }

  function isForeign(hostId: number): boolean {
    return foreign.some(({ from, count }) => hostId < from + count && from < hostId + SIZE);
  }

  return {
    claim(dir) {
      mkdirSync(registry, { recursive: true, mode: 0o700 });
      for (const { from, count } of areas) {
        // Start at a random place, so that a range that was just released is not reused at once.
        const first = Math.floor(Math.random() * count);
        for (let tries = 0; tries < count; tries++) {
          const hostId = from + ((first + tries) % count) * SIZE;
          if (!isForeign(hostId) && take(dir, hostId)) return { hostId, size: SIZE };
        }
      }
      throw new CayError('resource_exhausted', `Cannot start an instance: every range of host ids is taken`, {
        hint: 'stop or remove sandboxes',
      });
    },

    keep(dir, { hostId }) {
      if (taken.get(basename(dir)) !== hostId) take(dir, hostId);
    },

    release(dir) {
      const hostId = taken.get(basename(dir));
      if (hostId === undefined) return;
      // The directory of links may have been emptied, and another server may have taken the range since.
      if (targetOf(link(hostId)) === owner(dir)) remove(link(hostId));
      taken.delete(basename(dir));
    },
  };
}

/** Lines of `name:first:count`. */
function subordinateRanges(file: string): Area[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .filter((fields) => fields.length === 3)
    .map(([, from, count]) => ({ from: Number(from), count: Number(count) }));
}

/** Undefined if it is gone, or is not a link. */
function targetOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
