import { join } from 'node:path';
import { guestBinary } from '../../guest/guest-binary.ts';
import { attempt, command } from './command.ts';
import { resourceError } from '../resource-error.ts';

export interface Subvolumes {
  /** The subvolume id of a tree. */
  id(name: string): Promise<number>;
  /** The ids of all subvolumes, ours or not. */
  everyId(): Promise<Set<number>>;
  /** Makes a snapshot of a tree, and limits what it may take. */
  copy(from: string, to: string, options: { readOnly: boolean; limit: number | null }): Promise<void>;
  remove(name: string): Promise<void>;
}

/** Each pass removes at least one level of nested subvolumes. */
const MAX_PASSES = 64;

/** Manages the subvolumes in `treesDir`, which is in the subvolume `base`. */
export async function openSubvolumes(base: string, treesDir: string): Promise<Subvolumes> {
  const ids = new Map<string, number>();
  // `-o` lists direct children of `base` only, so names that a sandbox chose are not among them.
  for (const line of (await command(['btrfs', 'subvolume', 'list', '-o', base])).split('\n')) {
    const [, id, name] = /^ID (\d+) .* path (?:.*\/)?trees\/([a-z0-9_-]{1,64})$/.exec(line) ?? [];
    if (id !== undefined && name !== undefined) ids.set(name, Number(id));
  }

  async function id(name: string): Promise<number> {
    const known = ids.get(name);
    if (known !== undefined) return known;
    const found = Number(await command(['btrfs', 'inspect-internal', 'rootid', join(treesDir, name)]));
    ids.set(name, found);
    return found;
  }

  /** One process, where those of btrfs would be three: the copy, its limit and its id. */
  async function copy(
    from: string,
    to: string,
    { readOnly, limit }: { readOnly: boolean; limit: number | null },
  ): Promise<void> {
    const found = await command([
      guestBinary(),
      'btrfs-snapshot',
      join(treesDir, from),
      join(treesDir, to),
      readOnly ? 'ro' : 'rw',
      limit === null ? '-' : String(limit),
    ]);
    ids.set(to, Number(found));
  }

  async function everyId(): Promise<Set<number>> {
    const text = await command(['btrfs', 'subvolume', 'list', base]);
    return new Set([...text.matchAll(/^ID (\d+) /gm)].map((match) => Number(match[1])));
  }

  async function resolve(subvolumeId: number): Promise<string> {
    const { stdout } = await attempt([
      'btrfs',
      'inspect-internal',
      'subvolid-resolve',
      String(subvolumeId),
      base,
    ]);
    return stdout.replace(/\n$/, '');
  }

  /**
   * A process in a sandbox may create subvolumes in its tree. It chooses their names, which may forge lines
   * of the list. So each id is looked up and must lie within the tree.
   */
  async function removeInner(name: string): Promise<number> {
    const prefix = `${await resolve(await id(name))}/`;
    // Removing them writes to the tree, which fails when its quota is used up.
    await attempt(['btrfs', 'qgroup', 'limit', 'none', join(treesDir, name)]);
    let removed = 0;
    for (const inner of await everyId()) {
      if (prefix === '/' || !(await resolve(inner)).startsWith(prefix)) continue;
      const { exitCode } = await attempt(['btrfs', 'subvolume', 'delete', '-i', String(inner), base]);
      if (exitCode === 0) removed++;
    }
    return removed;
  }

  return {
    id,
    everyId,
    copy,
    async remove(name) {
      for (let pass = 0; ; pass++) {
        const { exitCode, stderr } = await attempt(['btrfs', 'subvolume', 'delete', join(treesDir, name)]);
        if (exitCode === 0) break;
        const nested = /not empty/i.test(stderr) && pass < MAX_PASSES && (await removeInner(name)) > 0;
        if (!nested)
          throw resourceError(
            'internal',
            { kind: 'tree', name },
            (tree) => `Cannot remove ${tree}: ${stderr.trim().slice(0, 500)}`,
          );
      }
      ids.delete(name);
    },
  };
}
