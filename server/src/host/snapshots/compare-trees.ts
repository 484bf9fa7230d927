/**
 * What differs between two trees that never change.
 *
 * What became of a file is told by which file it is, not by its path: one that is found elsewhere was moved,
 * and a directory takes what is in it along. A path that has another file of the same type now was modified.
 * One that has another type, or whose file was overwritten by one from elsewhere, was removed and has a
 * second entry for what is there now.
 *
 * Times and extended attributes are no differences by themselves.
 */
import { CayError, type FileChange } from '@cay/sdk/protocol';
import { sortInTurns } from '../../lib/sort-in-turns.ts';
import { type ByteRange, differsInContent, readEntry, readNames, type TreeEntry } from './tree-entry.ts';

export interface CompareOptions {
  /** The directories of the trees on the host. */
  from: string;
  to: string;
  /**
   * `inode`: a file keeps its number and its time of birth in every copy of a tree. `reused-inode`: it keeps
   * its number, which others may have after it, so what was moved has to be alike as well. `likeness`:
   * numbers mean nothing, and what was moved is recognised by its time, size and content.
   */
  identity: 'inode' | 'reused-inode' | 'likeness';
  /** Times are too coarse to tell that nothing was written, so all that is read. */
  coarseTimes?: boolean;
  /** Where differences may be. Absent means anywhere. */
  touched?: Touched;
  signal?: AbortSignal | undefined;
}

/** Paths that may differ. More than those that do cost time only; fewer would be missed. */
export interface Touched {
  /** Names to look at in a directory that has the path `from` in one tree and `to` in the other. */
  names(from: string, to: string): Iterable<string>;
  /** Directories that were moved, as paths in both trees. */
  moved: readonly (readonly [string, string])[];
  /** The bytes of a file, by its path in `to`, that may differ if it is the same file as before. */
  ranges(to: string): readonly ByteRange[] | undefined;
}

interface Gone extends TreeEntry {
  /** Where it would be in the other tree, had it not gone. */
  place?: string;
}

interface Found {
  path: string;
  change: FileChange;
}

type Pair = readonly [TreeEntry, TreeEntry];

/** Calls to the filesystem in flight. */
const WIDTH = 32;
/** What is held of both trees: paths, and what each entry costs besides. */
const MAX_BYTES = 128 * 1024 * 1024;
const ENTRY_BYTES = 400;
/** What btrfs shows in place of a subvolume inside of a tree, which is no part of the tree's copies. */
const FOREIGN_INODE = 2n;

export async function compareTrees(options: CompareOptions): Promise<FileChange[]> {
  const { from, to, identity, touched, coarseTimes = false, signal } = options;
  const found: Found[] = [];
  const gone = new Map<string, Gone>();
  const come = new Map<string, TreeEntry>();
  /** Directories that are somewhere else now, known beforehand. */
  const movedFrom = new Map<string, { twin: TreeEntry; entry: TreeEntry; place?: string }>();
  const movedTo = new Set<string>();
  let heldBytes = 0;

  const keyOf = ({ type, stat }: TreeEntry): string => {
    if (identity === 'inode') return `${type}:${stat.ino}:${stat.birthtimeNs}`;
    if (identity === 'reused-inode') return `${type}:${stat.ino}`;
    return type === 'directory' ? `${type}:${stat.mtimeNs}` : `${type}:${stat.mtimeNs}:${stat.size}`;
  };
  const isSame = (a: TreeEntry, b: TreeEntry): boolean =>
    identity === 'inode' ? keyOf(a) === keyOf(b) : a.type === b.type;

  const isPart = (entry: TreeEntry | undefined): entry is TreeEntry =>
    entry !== undefined &&
    !(
      identity === 'inode' &&
      entry.type === 'directory' &&
      entry.stat.ino === FOREIGN_INODE &&
      entry.path !== ''
    );

  async function entryAt(root: string, path: string): Promise<TreeEntry | undefined> {
    const entry = await readEntry(root, path);
    return isPart(entry) ? entry : undefined;
  }

  /** Counts what is kept until the end. */
  function keep<T extends TreeEntry>(entry: T): T {
    heldBytes += ENTRY_BYTES + entry.path.length;
    if (heldBytes > MAX_BYTES) {
      throw new CayError(
        'resource_exhausted',
        `The trees differ in more than can be compared at once: more than ${MAX_BYTES} bytes of entries`,
      );
    }
    return entry;
  }

  await settle(await walk());
  return (await sortInTurns(found, inOrder)).map(({ change }) => change);

  /**
   * Compares what is at the same place, and gathers what is not. Resolves pairs that are one and the same
   * file.
   */
  async function walk(): Promise<Pair[]> {
    const pairs: Pair[] = [];
    const roots: Pair = [(await readEntry(from, ''))!, (await readEntry(to, ''))!];
    const queue: Pair[] = [roots];
    pairs.push(roots);
    for (const [a, b] of touched?.moved ?? []) {
      const [entry, twin] = [await entryAt(from, a), await entryAt(to, b)];
      if (entry?.type !== 'directory' || twin?.type !== 'directory' || keyOf(entry) !== keyOf(twin)) continue;
      movedFrom.set(a, { entry: keep(entry), twin: keep(twin) });
      movedTo.add(b);
      queue.push([entry, twin]);
    }
    await drain(queue, async ([a, b]) => {
      const [inFrom, inTo] = touched
        ? [undefined, undefined]
        : await Promise.all([readNames(from, a.path), readNames(to, b.path)]);
      const [has, had] = [inTo && new Set(inTo), inFrom && new Set(inFrom)];
      const names = touched ? [...touched.names(a.path, b.path)] : [...new Set([...inFrom!, ...inTo!])];
      await drain(names, async (name) => {
        const [pathA, pathB] = [`${a.path}/${name}`, `${b.path}/${name}`];
        const [one, other] = await Promise.all([
          had?.has(name) === false ? undefined : entryAt(from, pathA),
          has?.has(name) === false ? undefined : entryAt(to, pathB),
        ]);
        if (one && other && !movedFrom.has(pathA) && !movedTo.has(pathB) && isSame(one, other)) {
          if (one.type === 'directory') queue.push([keep(one), keep(other)]);
          if (touched || seemsChanged(one, other)) pairs.push([keep(one), keep(other)]);
          return;
        }
        const moved = movedFrom.get(pathA);
        if (moved) moved.place = pathB;
        else if (one) gone.set(pathA, keep({ ...one, place: pathB }));
        if (other && !movedTo.has(pathB)) come.set(pathB, keep(other));
      });
    });
    await expand(from, gone, (path) => movedFrom.has(path));
    await expand(to, come, (path) => movedTo.has(path));
    return pairs;
  }

  /** Adds all that is in directories that are on one side only. */
  async function expand(
    root: string,
    entries: Map<string, TreeEntry>,
    isKnown: (path: string) => boolean,
  ): Promise<void> {
    const queue = [...entries.values()].filter(({ type }) => type === 'directory');
    await drain(queue, async ({ path }) => {
      await drain(await readNames(root, path), async (name) => {
        const entry = isKnown(`${path}/${name}`) ? undefined : await entryAt(root, `${path}/${name}`);
        if (!entry) return;
        entries.set(entry.path, keep(entry));
        if (entry.type === 'directory') queue.push(entry);
      });
    });
  }

  /** Finds out where what is gone has gone to. */
  async function settle(pairs: Pair[]): Promise<void> {
    const twins = await moveDirectories();
    /** Pairs at one place, and those to be reported as moved. */
    const moved: Pair[] = [];
    for (const [path, entry] of await sorted(gone)) {
      const above = twins.get(parentOf(path));
      if (entry.place === undefined && above) entry.place = `${above.path}/${nameOf(path)}`;
      if (entry.type !== 'directory') continue;
      const twin = twins.get(path);
      const successor = twin ?? inPlace(entry);
      if (!successor) continue;
      twins.set(path, successor);
      gone.delete(path);
      come.delete(successor.path);
      (successor.path === entry.place ? pairs : moved).push([entry, successor]);
    }
    for (const [path, { entry, twin, place }] of movedFrom) {
      const above = twins.get(parentOf(path));
      const at = place ?? (above && `${above.path}/${nameOf(path)}`);
      (at === twin.path ? pairs : moved).push([entry, twin]);
    }
    // Links of one file that stayed where they are, before any of its links counts as moved.
    for (const [path, entry] of [...gone]) {
      const other = inPlace(entry);
      if (other && keyOf(entry) === keyOf(other)) take(path, other.path, pairs);
    }
    await moveFiles(moved);
    for (const [path, entry] of [...gone]) {
      const other = inPlace(entry);
      if (other) take(path, other.path, pairs);
    }
    await drain(pairs, (pair) => compare(pair, false));
    await drain(moved, (pair) => compare(pair, true));
    for (const entry of gone.values()) report('removed', entry, undefined);
    for (const entry of come.values()) report('added', undefined, entry);
  }

  function inPlace(entry: Gone): TreeEntry | undefined {
    const other = entry.place === undefined ? undefined : come.get(entry.place);
    return other?.type === entry.type ? other : undefined;
  }

  function take(path: string, at: string, pairs: Pair[]): void {
    pairs.push([gone.get(path)!, come.get(at)!]);
    gone.delete(path);
    come.delete(at);
  }

  /**
   * Directories of the one tree by path, with what they are in the other, without those that are at one
   * place.
   */
  async function moveDirectories(): Promise<Map<string, TreeEntry>> {
    const twins = new Map<string, TreeEntry>();
    for (const [path, { twin }] of movedFrom) twins.set(path, twin);
    const there = await byKey(come, 'directory');
    for (const [key, entries] of await byKey(gone, 'directory')) {
      const others = there.get(key) ?? [];
      const [entry, other] = [entries[0]!, others[0]];
      if (entries.length !== 1 || others.length !== 1 || !other) continue;
      if (identity !== 'inode' && !(await hasSameNames(entry, other))) continue;
      twins.set(entry.path, other);
      come.delete(other.path);
    }
    return twins;
  }

  async function hasSameNames(entry: TreeEntry, other: TreeEntry): Promise<boolean> {
    const [one, two] = await Promise.all([readNames(from, entry.path), readNames(to, other.path)]);
    return one.length > 0 && one.length === two.length && new Set([...one, ...two]).size === one.length;
  }

  async function moveFiles(moved: Pair[]): Promise<void> {
    const there = await byKey(come);
    for (const [key, entries] of await byKey(gone)) {
      if (entries[0]!.type === 'directory') continue;
      const others = there.get(key) ?? [];
      for (const entry of entries) {
        const other = others[0];
        if (!other) break;
        // What only looks alike has to be alike.
        if (identity !== 'inode' && (await differsInContent([from, entry], [to, other], { signal })))
          continue;
        others.shift();
        take(entry.path, other.path, moved);
      }
    }
  }

  async function byKey(
    entries: Map<string, TreeEntry>,
    type?: TreeEntry['type'],
  ): Promise<Map<string, TreeEntry[]>> {
    return Map.groupBy(
      (await sorted(entries))
        .map(([, entry]) => entry)
        .filter((entry) => type === undefined || entry.type === type),
      keyOf,
    );
  }

  function seemsChanged({ stat: a }: TreeEntry, { stat: b }: TreeEntry): boolean {
    return (
      coarseTimes ||
      a.ino !== b.ino ||
      a.ctimeNs !== b.ctimeNs ||
      a.mtimeNs !== b.mtimeNs ||
      a.size !== b.size ||
      a.mode !== b.mode
    );
  }

  async function compare([a, b]: Pair, moved: boolean): Promise<void> {
    const ranges = touched && keyOf(a) === keyOf(b) ? touched.ranges(b.path) : undefined;
    const content =
      (ranges !== undefined || seemsChanged(a, b)) &&
      (await differsInContent([from, a], [to, b], { ranges, signal }));
    const mode = (a.stat.mode & 0o7777n) !== (b.stat.mode & 0o7777n);
    const owner = a.stat.uid !== b.stat.uid || a.stat.gid !== b.stat.gid;
    if (moved || content || mode || owner)
      report(moved ? 'renamed' : 'modified', a, b, { content, mode, owner });
  }

  function report(
    change: FileChange['change'],
    a: TreeEntry | undefined,
    b: TreeEntry | undefined,
    { content = false, mode = false, owner = false } = {},
  ): void {
    const { path, type } = (b ?? a)!;
    found.push({
      path,
      change: {
        path: shown(path),
        change,
        ...(change === 'renamed' && { from: shown(a!.path) }),
        type,
        ...(a && { before: factsOf(a) }),
        ...(b && { after: factsOf(b) }),
        content,
        mode,
        owner,
      },
    });
  }

  /** Works on all of a list that may grow meanwhile. */
  async function drain<T>(queue: T[], work: (item: T) => Promise<void>): Promise<void> {
    for (let done = 0; done < queue.length;) {
      signal?.throwIfAborted();
      const batch = queue.slice(done, done + WIDTH);
      done += batch.length;
      await Promise.all(batch.map(work));
    }
  }
}

/** By bytes; of two entries of one path, what was removed comes first. */
function inOrder(a: Found, b: Found): number {
  if (a.path !== b.path) return a.path < b.path ? -1 : 1;
  return Number(b.change.change === 'removed') - Number(a.change.change === 'removed');
}

function factsOf({ stat }: TreeEntry): NonNullable<FileChange['before']> {
  return {
    size: Number(stat.size),
    mode: Number(stat.mode & 0o7777n),
    uid: Number(stat.uid),
    gid: Number(stat.gid),
  };
}

/** What is no UTF-8 shows as U+FFFD. */
function shown(path: string): string {
  return path === '' ? '/' : Buffer.from(path, 'latin1').toString();
}

function sorted<T>(entries: Map<string, T>): Promise<[string, T][]> {
  return sortInTurns([...entries], ([a], [b]) => (a < b ? -1 : 1));
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/'));
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
