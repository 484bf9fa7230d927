/**
 * A range of host ids for each instance, so that to the host's kernel no two sandboxes have a user in common.
 *
 * Trees are stored as one range. The runtime of an instance sees its tree through an idmapped mount that
 * shows them as the instance's own. A range is taken by a link to the instance's directory, named by its
 * first id: one machine has one directory of links, so that several servers never take the same, and it is
 * empty after a restart of the machine.
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
   * Takes a range for the instance with that directory, which exists. Throws `resource_exhausted` if none is
   * left.
   */
  claim(dir: string): IdMapping;
  /** Notes that the instance with that directory has that range, as an earlier server decided. */
  keep(dir: string, ids: IdMapping): void;
  /** Gives back what the instance has. Having none is done. */
  release(dir: string): void;
}

export interface IdRangesOptions {
  /** The directory of all instances of this installation. */
  instancesDir: string;
  /** The directory of links. */
  registry?: string;
  areas?: readonly Area[];
  /** Files that say which ids the accounts of the machine may use. */
  subordinate?: readonly string[];
}

/** Ranges that lie one after the other. */
interface Area {
  from: number;
  count: number;
}

const SIZE = 65_536;

/**
 * Above what directory services map accounts to by default (2,000,200,000), and below what systemd keeps for
 * foreign images. When they are all taken: above 2,147,483,648, which nobody else uses, up to the last ids,
 * which mean "nobody" and "none".
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

  /** What an earlier server has taken, and what was left by instances whose directory is gone. */
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

  /** Whether it was free. */
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
        // Somewhere, so that what was just given back is not taken again at once.
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
      // Somebody may have emptied the directory of links, and another server taken the range since.
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

/** Nothing if it has gone meanwhile, or is no link. */
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
