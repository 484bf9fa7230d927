import type { SnapshotId } from '@cay/sdk/protocol';
import { indexTree, type TreeIndex } from './tree-index.ts';

/** Indexes of snapshots that were compared, kept for the next comparison up to so many files together. */
const MOST_INDEXED = 500_000;

export interface TreeIndexes {
  /** `open` gives all files as a tar archive. */
  of(
    snapshot: SnapshotId,
    open: () => AsyncIterable<Uint8Array>,
    options?: { isLeftOut?: (name: string) => boolean },
  ): Promise<TreeIndex>;
  forget(snapshot: SnapshotId): void;
}

export function treeIndexes(): TreeIndexes {
  const indexes = new Map<SnapshotId, TreeIndex>();
  return {
    async of(snapshot, open, options) {
      const known = indexes.get(snapshot);
      if (known) return known;
      const made = await indexTree(open(), options);
      indexes.set(snapshot, made);
      let size = 0;
      // The newest stay.
      for (const [id, each] of [...indexes].reverse())
        if ((size += each.size) > MOST_INDEXED) indexes.delete(id);
      return made;
    },
    forget: (snapshot) => void indexes.delete(snapshot),
  };
}
