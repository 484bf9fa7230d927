/**
 * Quotas of btrfs: a "qgroup" for each subvolume, counted by the kernel and read from sysfs without
 * a process.
 *
 * The simple mode (kernel 6.7, btrfs-progs 6.7) counts what a subvolume wrote itself, until the last
 * copy of it is gone. It costs next to nothing and is preferred.
 *
 * The ordinary mode counts what a subvolume refers to, shared or not, so a copy starts with all that
 * its parent has: a limit is the parent's size plus the quota. The kernel looks up every owner of
 * what changes, so with hundreds of copies of one parent each transaction takes hundreds of
 * milliseconds.
 *
 * In both, taking snapshots of a tree does not lower its count, so a sandbox cannot escape its quota
 * by being snapshotted. The counts are those of the last transaction (30 s at most); the limits hold at once.
 */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { attempt, command } from './command.ts';
import { sysfsOf } from './mounts.ts';

export interface Qgroups {
  readonly mode: 'qgroup' | 'squota';
  /** What the subvolume references in ordinary mode, 0 in simple mode: a quota is added to this. */
  base(subvolumeId: number): Promise<number>;
  /** Bytes that are freed with the subvolume; in simple mode, bytes that it wrote. */
  exclusive(subvolumeId: number): Promise<number | undefined>;
  limitOf(subvolumeId: number): Promise<number | null>;
  limit(path: string, bytes: number | null): Promise<void>;
  /** Restarts counting if the kernel gave up, as it does when a very large tree is deleted. */
  recount(): Promise<void>;
  /** Removes the groups of deleted subvolumes; newer kernels do this themselves. */
  sweep(alive: () => Promise<ReadonlySet<number>>): Promise<void>;
}

/** Resolves `undefined` where quotas are off and `enable` is not set, or the kernel does not show them. */
export async function openQgroups(
  path: string,
  { enable }: { enable: boolean },
): Promise<Qgroups | undefined> {
  const dir = await sysfsOf(path);
  if (dir === undefined) return undefined;
  const groups = join(dir, 'qgroups');
  const readMode = async (): Promise<string> =>
    (await readFile(join(groups, 'mode'), 'utf8').catch(() => '')).trim();
  const isOn = async (): Promise<boolean> =>
    (await readFile(join(groups, 'enabled'), 'utf8').catch(() => '0')).trim() === '1';
  if (!(await isOn())) {
    if (!enable) return undefined;
    const simple = await attempt(['btrfs', 'quota', 'enable', '--simple', path]);
    if (simple.exitCode !== 0) {
      await attempt(['btrfs', 'quota', 'enable', path]);
      // Existing content is counted; on an empty filesystem that takes no time.
      await attempt(['btrfs', 'quota', 'rescan', '-w', path], { timeoutMs: 600_000 });
    }
    if (!(await isOn())) return undefined;
  }
  const mode = (await readMode()) === 'squota' ? 'squota' : 'qgroup';

  async function read(id: number, field: string): Promise<number | undefined> {
    const text = await readFile(join(groups, `0_${id}`, field), 'utf8').catch(() => undefined);
    return text === undefined ? undefined : Number(text);
  }

  return {
    mode,
    base: async (id) => (mode === 'squota' ? 0 : ((await read(id, 'referenced')) ?? 0)),
    exclusive: (id) => read(id, 'exclusive'),
    async limitOf(id) {
      const flags = (await read(id, 'limit_flags')) ?? 0;
      return flags & 1 ? ((await read(id, 'max_referenced')) ?? null) : null;
    },
    async limit(subvolume, bytes) {
      await command(['btrfs', 'qgroup', 'limit', bytes === null ? 'none' : String(bytes), subvolume]);
    },
    async recount() {
      const inconsistent = await readFile(join(groups, 'inconsistent'), 'utf8').catch(() => '0');
      if (inconsistent.trim() === '1') await attempt(['btrfs', 'quota', 'rescan', path]);
    },
    async sweep(alive) {
      const empty: number[] = [];
      for (const name of await readdir(groups).catch(() => [])) {
        const id = Number(/^0_(\d+)$/.exec(name)?.[1] ?? 0);
        // Ids below 256 are trees of the filesystem itself.
        if (id >= 256 && (await read(id, 'referenced')) === 0) empty.push(id);
      }
      if (empty.length === 0) return;
      // Listed after the groups: so a new subvolume is on the list.
      const living = await alive();
      for (const id of empty) {
        if (!living.has(id)) await attempt(['btrfs', 'qgroup', 'destroy', `0/${id}`, path]);
      }
    },
  };
}
