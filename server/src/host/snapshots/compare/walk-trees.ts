import type { Comparison, Pair } from './comparison.ts';
import { readEntry, readNames, type TreeEntry } from './tree-entry.ts';

/** An entry of `from` that is not at its path in `to`. */
export interface GoneEntry extends TreeEntry {
  /**
   * The path in `to` where it would be, given what became of its parent. Absent if its parent is gone too.
   */
  place?: string;
}

/** A directory that `touched` knows to be renamed. */
export interface RenamedDirectory {
  before: TreeEntry;
  after: TreeEntry;
  place?: string;
}

export interface Walked {
  /** The same file at the same place in both trees, if it may differ. */
  pairs: Pair[];
  /** Entries of `from` without a partner, by path. Directories with everything in them. */
  gone: Map<string, GoneEntry>;
  /** Entries of `to` without a partner, by path. */
  come: Map<string, TreeEntry>;
  /** By path in `from`. What is in them is walked as if they were at one place. */
  renamed: Map<string, RenamedDirectory>;
}

/** Pairs up the entries at the same place in both trees, and collects those without a partner. */
export async function walkTrees(comparison: Comparison): Promise<Walked> {
  const { options, entryAt, forEach, isSame, keep, keyOf, mayDiffer } = comparison;
  const { from, to, touched } = options;
  const roots: Pair = [(await readEntry(from, ''))!, (await readEntry(to, ''))!];
  const walked: Walked = { pairs: [roots], gone: new Map(), come: new Map(), renamed: new Map() };
  const { pairs, gone, come, renamed } = walked;
  /** Paths in `to` of renamed directories. */
  const renamedTo = new Set<string>();
  /** Directories whose content is still to be paired up. */
  const directories: Pair[] = [roots];

  for (const [pathBefore, pathAfter] of touched?.moved ?? []) {
    const [before, after] = [await entryAt(from, pathBefore), await entryAt(to, pathAfter)];
    if (before?.type !== 'directory' || after?.type !== 'directory') continue;
    if (keyOf(before) !== keyOf(after)) continue;
    renamed.set(pathBefore, { before: keep(before), after: keep(after) });
    renamedTo.add(pathAfter);
    directories.push([before, after]);
  }

  await forEach(directories, async ([a, b]) => {
    const names = await namesIn(comparison, a.path, b.path);
    await forEach(names, async ({ name, before: mayBeBefore, after: mayBeAfter }) => {
      const [pathBefore, pathAfter] = [`${a.path}/${name}`, `${b.path}/${name}`];
      const [before, after] = await Promise.all([
        mayBeBefore ? entryAt(from, pathBefore) : undefined,
        mayBeAfter ? entryAt(to, pathAfter) : undefined,
      ]);
      const isRenamed = renamed.has(pathBefore) || renamedTo.has(pathAfter);
      if (before && after && !isRenamed && isSame(before, after)) {
        if (before.type === 'directory') directories.push([keep(before), keep(after)]);
        if (touched || mayDiffer(before, after)) pairs.push([keep(before), keep(after)]);
        return;
      }
      const directory = renamed.get(pathBefore);
      if (directory) directory.place = pathAfter;
      else if (before) gone.set(pathBefore, keep({ ...before, place: pathAfter }));
      if (after && !renamedTo.has(pathAfter)) come.set(pathAfter, keep(after));
    });
  });
  await addContent(comparison, from, gone, (path) => renamed.has(path));
  await addContent(comparison, to, come, (path) => renamedTo.has(path));
  return walked;
}

interface Name {
  name: string;
  /** False if the name is known to be absent from that tree. */
  before: boolean;
  after: boolean;
}

/** The names to look at in a directory that is in both trees. */
async function namesIn(
  { options: { from, to, touched } }: Comparison,
  pathBefore: string,
  pathAfter: string,
): Promise<Name[]> {
  if (touched) {
    return [...touched.names(pathBefore, pathAfter)].map((name) => ({ name, before: true, after: true }));
  }
  const [inFrom, inTo] = await Promise.all([readNames(from, pathBefore), readNames(to, pathAfter)]);
  const [before, after] = [new Set(inFrom), new Set(inTo)];
  return [...new Set([...inFrom, ...inTo])].map((name) => ({
    name,
    before: before.has(name),
    after: after.has(name),
  }));
}

/** Adds everything in the directories that are in one tree only. */
async function addContent(
  { entryAt, forEach, keep }: Comparison,
  root: string,
  entries: Map<string, TreeEntry>,
  isRenamed: (path: string) => boolean,
): Promise<void> {
  const directories = [...entries.values()].filter(({ type }) => type === 'directory');
  await forEach(directories, async ({ path }) => {
    await forEach(await readNames(root, path), async (name) => {
      const entry = isRenamed(`${path}/${name}`) ? undefined : await entryAt(root, `${path}/${name}`);
      if (!entry) return;
      entries.set(entry.path, keep(entry));
      if (entry.type === 'directory') directories.push(entry);
    });
  });
}
