import type { FileChange } from '@cay/sdk/protocol';

/**
 * A Snapshotter keeps filesystem trees and makes cheap copies of them.
 *
 * A tree is *active* (writable, named by `key`) or *committed* (never changes again, named by
 * `name`). Active trees come from `prepare`, committed ones from `commit`, which copies an active
 * tree as it is at that moment and leaves it active. Every tree but an empty one has a committed
 * parent; the trees form a forest. Keys and names share one alphabet, `[a-z0-9_-]`, at most 64
 * characters, and one name space.
 *
 * A sandbox's root is an active tree. A template is a committed one:
 *
 *     await trees.prepare('build');                          // empty
 *     …fill the directory…
 *     await trees.commit('template-base', 'build');
 *     await trees.remove('build');
 *     const root = await trees.prepare('i42', { parent: 'template-base', quotaBytes });
 *
 * There is no verb that takes a tree back to what it was: another active tree is prepared from the
 * committed one, and the old is removed when the new is in use. So there is no moment at which
 * neither is whole.
 *
 * Every verb is idempotent and may be repeated after a crash between any two of its steps: what
 * was half done is finished or undone by the repetition, or swept by `open`. No verb leaves a mount
 * that `remove` or `close` does not take away.
 */
export interface TreeInfo {
  name: string;
  kind: 'active' | 'committed';
  parent?: string;
}

export interface PrepareOptions {
  /** A committed tree to start from; absent means an empty one. Rejects `not_found`. */
  parent?: string;
  /** Bytes that may be written beyond the parent. Rejects `unsupported` without the capability. */
  quotaBytes?: number | null;
}

export interface Snapshotter {
  readonly name: string;
  readonly capabilities: {
    /** `quotaBytes` is enforced by the filesystem. */
    quota: boolean;
    /** A copy costs the same whatever its size. */
    instant: boolean;
    /** Comparing costs what differs, not what there is. */
    incremental: boolean;
  };
  /**
   * Makes an active tree and resolves its directory on the host. The same key with the same parent is done
   * already.
   */
  prepare(key: string, options?: PrepareOptions): Promise<string>;
  /** The directory of an active tree, mounted again if the machine was restarted. Rejects `not_found`. */
  path(key: string): Promise<string>;
  /**
   * Copies `key` as it is now. The same name from the same key is done already; another's rejects
   * `already_exists`.
   */
  commit(name: string, key: string): Promise<void>;
  /** The directory of a committed tree, which nobody can write to. Rejects `not_found`. */
  committedPath(name: string): Promise<string>;
  /**
   * What differs between two committed trees, in the order of paths (absolute, `/` is the root of the tree),
   * owners as they are on the host. A directory that was moved is one entry. Where `incremental` the cost is
   * that of the difference.
   */
  changes(from: string, to: string, options?: { signal?: AbortSignal }): AsyncIterable<FileChange>;
  setQuota(key: string, quotaBytes: number | null): Promise<void>;
  /**
   * Bytes on disk that were written into an active tree, those that its copies share included. A commit
   * brings the count up to date. Resolves `undefined` where nobody counts them.
   */
  written(key: string): Promise<number | undefined>;
  /** Bytes on disk that go away if this tree does. */
  usage(key: string): Promise<number>;
  /** Rejects `failed_precondition` while another tree descends from it. Absent is done. */
  remove(name: string): Promise<void>;
  list(): Promise<TreeInfo[]>;
  /** Space of the driver that all trees stand on. */
  space(): Promise<{ totalBytes: number; freeBytes: number }>;
  /** Lets go; keeps every tree. Mounts that hold active trees stay. */
  close(): Promise<void>;
  /** Removes every tree and the driver they stand on, mounts and loop devices included. */
  destroy(): Promise<void>;
}
