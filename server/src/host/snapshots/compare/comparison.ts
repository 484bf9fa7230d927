/** What the steps of one comparison share: the identity of files, the memory bound, bounded concurrency. */
import { CayError } from '@cay/sdk/protocol';
import { readEntry, type ByteRange, type TreeEntry } from './tree-entry.ts';

export interface CompareOptions {
  /** The directories of the trees on the host. */
  from: string;
  to: string;
  /**
   * How the same file is recognised in both trees.
   * - `inode`: a file keeps its inode number and birth time in every copy of a tree.
   * - `reused-inode`: it keeps its number, but a later file may have the same number. A renamed file must
   *   also have the same content.
   * - `likeness`: numbers differ between copies. A renamed file must have the same time, size and content.
   */
  identity: 'inode' | 'reused-inode' | 'likeness';
  /** Times are too coarse to show that a file was not written, so every file is read. */
  coarseTimes?: boolean;
  /** Where differences may be. Default: anywhere. */
  touched?: Touched;
  signal?: AbortSignal | undefined;
}

/** Paths that may differ. Too many cost time only; a missing one hides a difference. */
export interface Touched {
  /** Names to look at in a directory that has the path `from` in one tree and `to` in the other. */
  names(from: string, to: string): Iterable<string>;
  /** Directories that were renamed, as paths in both trees. */
  moved: readonly (readonly [string, string])[];
  /** The bytes of a file, by its path in `to`, that may differ if it is the same file as before. */
  ranges(to: string): readonly ByteRange[] | undefined;
}

/** An entry of `from` and the entry of `to` that it became. */
export type Pair = readonly [TreeEntry, TreeEntry];

export interface Comparison {
  readonly options: CompareOptions;
  /**
   * Equal for the same file in both trees. Unless the identity is `inode`, other files may have it as well.
   */
  keyOf(entry: TreeEntry): string;
  /** True if the entries at one path are the same file, as far as the identity can tell. */
  isSame(a: TreeEntry, b: TreeEntry): boolean;
  /** False if times and sizes show that the content is the same. */
  mayDiffer(a: TreeEntry, b: TreeEntry): boolean;
  /** The entry at a path, or `undefined` if there is none that belongs to the tree. */
  entryAt(root: string, path: string): Promise<TreeEntry | undefined>;
  /** Counts an entry that stays in memory. Throws `resource_exhausted` beyond the bound. */
  keep<T extends TreeEntry>(entry: T): T;
  /** Runs `work` for every item, several at a time. The list may grow meanwhile. */
  forEach<T>(items: T[], work: (item: T) => Promise<void>): Promise<void>;
}

/** Filesystem calls in progress at a time. */
const CONCURRENCY = 32;
/** Bound on the memory for entries of both trees: each costs its path and a fixed amount. */
const MAX_BYTES = 128 * 1024 * 1024;
const ENTRY_BYTES = 400;
/** The inode number that btrfs shows for a nested subvolume, which is not part of a tree's copies. */
const FOREIGN_INODE = 2n;

export function openComparison(options: CompareOptions): Comparison {
  const { identity, coarseTimes = false, signal } = options;
  let heldBytes = 0;

  const keyOf = ({ type, stat }: TreeEntry): string => {
    if (identity === 'inode') return `${type}:${stat.ino}:${stat.birthtimeNs}`;
    if (identity === 'reused-inode') return `${type}:${stat.ino}`;
    return type === 'directory' ? `${type}:${stat.mtimeNs}` : `${type}:${stat.mtimeNs}:${stat.size}`;
  };

  const isForeign = ({ type, stat, path }: TreeEntry): boolean =>
    identity === 'inode' && type === 'directory' && stat.ino === FOREIGN_INODE && path !== '';

  return {
    options,
    keyOf,
    isSame: (a, b) => (identity === 'inode' ? keyOf(a) === keyOf(b) : a.type === b.type),
    mayDiffer: ({ stat: a }, { stat: b }) =>
      coarseTimes ||
      a.ino !== b.ino ||
      a.ctimeNs !== b.ctimeNs ||
      a.mtimeNs !== b.mtimeNs ||
      a.size !== b.size ||
      a.mode !== b.mode,
    async entryAt(root, path) {
      const entry = await readEntry(root, path);
      return entry && !isForeign(entry) ? entry : undefined;
    },
    keep(entry) {
      heldBytes += ENTRY_BYTES + entry.path.length;
      if (heldBytes > MAX_BYTES) {
        throw new CayError(
          'resource_exhausted',
          `Cannot compare the trees: the entries that differ take more than ${MAX_BYTES} bytes of memory`,
        );
      }
      return entry;
    },
    async forEach(items, work) {
      for (let done = 0; done < items.length;) {
        signal?.throwIfAborted();
        const batch = items.slice(done, done + CONCURRENCY);
        done += batch.length;
        await Promise.all(batch.map(work));
      }
    },
  };
}
