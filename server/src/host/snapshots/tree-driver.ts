import type { FileChange } from '@cay/sdk/protocol';
import type { TreeRecord } from './records.ts';

/**
 * The operations of one filesystem on trees. `forest.ts` calls them, in order and one at a time for each
 * tree.
 */
export interface TreeDriver {
  /** Names of all complete trees. Removes incomplete ones. */
  trees(): Promise<string[]>;
  /** Finishes what the record says and a crash has interrupted. */
  repair?(name: string, record: TreeRecord): Promise<void>;
  /** Adds driver-specific fields to the record of a tree that is about to be made. */
  plan?(record: TreeRecord): Promise<TreeRecord>;
  /** Makes an active tree from `record.parent`. Replaces what an earlier failure left under this name. */
  make(key: string, record: TreeRecord): Promise<void>;
  /** Makes the committed tree `name` from the active one, atomically. */
  copy(name: string, key: string, record: TreeRecord): Promise<void>;
  drop(name: string, record: TreeRecord): Promise<void>;
  path(key: string, record: TreeRecord): Promise<string>;
  /** The directory of a committed tree, read-only. */
  committedPath(name: string, record: TreeRecord): Promise<string>;
  /** Compares two trees, given their directories. */
  compare(from: CommittedTree, to: CommittedTree, signal: AbortSignal | undefined): Promise<FileChange[]>;
  limit(key: string, record: TreeRecord): Promise<void>;
  usage(name: string, record: TreeRecord): Promise<number>;
  /** Absent where the filesystem does not count it. */
  written?(key: string, record: TreeRecord): Promise<number | undefined>;
}

export interface CommittedTree {
  name: string;
  path: string;
}
