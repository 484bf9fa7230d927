import type { FileChange } from '@cay/sdk/protocol';

export interface TreeInfo {
  name: string;
  kind: 'active' | 'committed';
  parent?: string;
}

export interface PrepareOptions {
  /** A committed tree to start from; absent starts with an empty tree. Rejects `not_found`. */
  parent?: string;
  /** Bytes that may be written beyond the parent. Rejects `unsupported` without the capability. */
  quotaBytes?: number | null;
}

/**
 * A Snapshotter keeps filesystem trees and makes cheap copies of them.
 *
 * **Terms.** A tree is *active* (writable, named by `key`) or *committed* (immutable, named by `name`).
 * `prepare` makes an active tree. `commit` copies an active tree as it is at that moment into a committed one
 * and leaves the active one active. Every tree that did not start empty has a committed *parent*, so the
 * trees form a forest. Keys and names are 1 to 64 characters of `[a-z0-9_-]` and share one name space.
 *
 * **Example.** The root of a sandbox is an active tree; a template is a committed one:
 *
 *     await trees.prepare('build');                          // empty
 *     …fill the directory…
 *     await trees.commit('template-base', 'build');
 *     await trees.remove('build');
 *     const root = await trees.prepare('i42', { parent: 'template-base', quotaBytes });
 *     await trees.commit('s1', 'i42');                       // a snapshot of the sandbox
 *     await trees.prepare('i43', { parent: 's1' });          // a fork, or the target of a rollback
 *     for await (const change of trees.changes('template-base', 's1')) show(change);
 *     await trees.remove('i42');                             // 's1' and 'i43' stay
 *
 * There is no verb that rolls a tree back. Prepare another active tree from the committed one, use it, then
 * remove the old one: at every moment one of the two is complete.
 *
 * **Who calls it, how often.** The local backend: one `prepare` and one `remove` for each sandbox start, one
 * `commit` for each snapshot, `written` once for each snapshot, `usage` for each `stats` call of a client,
 * `space` at each look at the capacity, `list` at startup and in each orphan sweep. `prepare` and `commit`
 * are on the path of creating and forking a sandbox: where `capabilities.instant` is true they take
 * milliseconds, whatever the size of the tree.
 *
 * **Cost.** A copy costs one operation of the filesystem and one record, a symlink. `changes` costs what
 * `capabilities.incremental` says, `usage` may cost a walk of the whole tree.
 *
 * **Concurrency.** Any verbs may run at once. Verbs on the same tree are queued in the order of calls. A
 * `prepare` waits for a parent that is still being committed. A `remove` waits for comparisons that read the
 * tree. One process at a time opens a directory.
 *
 * **Crashes.** Every verb is idempotent and may be repeated after a crash between any two of its steps: the
 * repetition finishes or undoes what was half done, and so does the next open. No verb leaves a mount that
 * `remove` or `close` does not take away.
 *
 * **Errors.** `invalid_argument` (name or quota), `not_found`, `already_exists` (the name is in use by a tree
 * of another origin), `failed_precondition` (it has children, or it is busy), `unsupported` (no quotas here),
 * `internal` with the words of the filesystem tool. `prepare`, `commit` and `setQuota` reject
 * `resource_exhausted` when the disk or the pool is full; the tree then does not exist, and the caller may
 * free space and call again. `changes` rejects `resource_exhausted` when the trees differ in more entries
 * than can be held in memory.
 */
export interface Snapshotter {
  readonly name: string;
  readonly capabilities: {
    /** `quotaBytes` is enforced by the filesystem. */
    quota: boolean;
    /** Copying takes the same time for a small tree and a large one. */
    instant: boolean;
    /** Comparing takes time proportional to the difference, not to the size of the trees. */
    incremental: boolean;
  };
  /**
   * Makes an active tree and resolves with its directory on the host. If the key exists already with the same
   * parent, resolves with that tree's directory.
   */
  prepare(key: string, options?: PrepareOptions): Promise<string>;
  /** The directory of an active tree, mounted again if the machine was restarted. Rejects `not_found`. */
  path(key: string): Promise<string>;
  /**
   * Copies `key` as it is now. Does nothing if `name` was already committed from this key; rejects
   * `already_exists` if it was committed from another.
   */
  commit(name: string, key: string): Promise<void>;
  /** The directory of a committed tree, mounted read-only. Rejects `not_found`. */
  committedPath(name: string): Promise<string>;
  /**
   * The differences between two committed trees, sorted by path (absolute, `/` is the root of the tree), with
   * owners as they are on the host. A moved directory is one entry. Where `incremental` is true the cost is
   * proportional to the difference, otherwise to the size of both trees.
   */
  changes(from: string, to: string, options?: { signal?: AbortSignal }): AsyncIterable<FileChange>;
  setQuota(key: string, quotaBytes: number | null): Promise<void>;
  /**
   * Bytes on disk that were written into an active tree, including bytes now shared with its copies. The
   * count is up to date after a commit. Resolves `undefined` where the filesystem does not count them. Cheap:
   * it reads a counter.
   */
  written(key: string): Promise<number | undefined>;
  /**
   * Bytes on disk that are freed if this tree is removed. Reads a counter with quotas (btrfs) and on ZFS;
   * otherwise it walks the tree, at a cost that grows with the number of files. Never call it on a hot path.
   */
  usage(key: string): Promise<number>;
  /**
   * Rejects `failed_precondition` with `details.child` while the tree has children. Removing an absent tree
   * succeeds.
   */
  remove(name: string): Promise<void>;
  list(): Promise<TreeInfo[]>;
  /** Size of the filesystem or pool that holds all trees. Cheap. */
  space(): Promise<{ totalBytes: number; freeBytes: number }>;
  /** Releases timers and unused mounts. All trees stay, and so do the mounts of active trees. */
  close(): Promise<void>;
  /** Removes every tree and the pool that holds them, with mounts and loop devices. */
  destroy(): Promise<void>;
}
