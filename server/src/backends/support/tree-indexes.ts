import type { FileChange, SnapshotId } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';
import { requireSnapshotId } from './check.ts';
import { compareIndexes } from './compare-indexes.ts';
import { indexTree, type TreeIndex } from './tree-index.ts';

/** Indexes of snapshots that were compared, kept for the next comparison up to so many files together. */
const MOST_INDEXED = 500_000;

export interface TreeIndexesOptions {
  /** Rejects `not_found`. Called for each comparison, so that nothing is said of a snapshot that is gone. */
  require(snapshot: SnapshotId, scope: CallScope): Promise<unknown>;
  /** All files of a snapshot as a tar archive. */
  open(snapshot: SnapshotId, scope: CallScope): AsyncIterable<Uint8Array>;
  /** Names in that archive that are no files of the sandbox. */
  isLeftOut?(this: void, name: string): boolean;
}

export interface TreeIndexes {
  /** The verb `changes` of `Snapshotting`. */
  changes(this: void, from: SnapshotId, to: SnapshotId, scope?: CallScope): AsyncIterable<FileChange>;
  forget(snapshot: SnapshotId): void;
}

export function treeIndexes({ require, open, isLeftOut }: TreeIndexesOptions): TreeIndexes {
  const indexes = new Map<SnapshotId, TreeIndex>();

  async function index(snapshot: SnapshotId, scope: CallScope): Promise<TreeIndex> {
    await require(snapshot, scope);
    const known = indexes.get(snapshot);
    if (known) return known;
    const made = await indexTree(open(snapshot, scope), { ...(isLeftOut && { isLeftOut }) });
    indexes.set(snapshot, made);
    let size = 0;
    // The newest stay.
    for (const [id, each] of [...indexes].reverse())
      if ((size += each.size) > MOST_INDEXED) indexes.delete(id);
    return made;
  }

  return {
    async *changes(from, to, scope = {}) {
      requireSnapshotId(from);
      requireSnapshotId(to);
      const [before, after] = [await index(from, scope), await index(to, scope)];
      yield* compareIndexes(before, after);
    },
    forget: (snapshot) => void indexes.delete(snapshot),
  };
}
