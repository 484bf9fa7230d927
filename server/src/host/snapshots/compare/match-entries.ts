import { sortInTurns } from '../../../lib/sort-in-turns.ts';
import type { Comparison, Pair } from './comparison.ts';
import { differsInContent, readNames, type TreeEntry } from './tree-entry.ts';
import type { GoneEntry, Walked } from './walk-trees.ts';

export interface Matched {
  /** The same place in both trees. */
  inPlace: Pair[];
  /** The same file at another place. */
  renamed: Pair[];
  removed: Iterable<TreeEntry>;
  added: Iterable<TreeEntry>;
}

/**
 * Finds a partner in `to` for the entries of `from` that lost theirs. Every entry gets at most one partner,
 * so
 * the order of the steps decides:
 *
 * 1. Directories, first by identity and then by place: only then is it known where their content belongs.
 * 2. Files that are at their place and are the same file. So one hard link of several that stayed is not
 *    reported as renamed.
 * 3. Files by identity: these were renamed.
 * 4. Files at their place, of the same type: these were replaced.
 *
 * What is left was removed or added.
 */
export async function matchEntries(comparison: Comparison, walked: Walked): Promise<Matched> {
  const { keyOf } = comparison;
  const { gone, come } = walked;
  const inPlace: Pair[] = walked.pairs;
  const renamed: Pair[] = [];

  /** The entry of the same type at the place of a gone one. */
  function atPlaceOf(entry: GoneEntry): TreeEntry | undefined {
    const other = entry.place === undefined ? undefined : come.get(entry.place);
    return other?.type === entry.type ? other : undefined;
  }

  function match(before: TreeEntry, after: TreeEntry, into: Pair[]): void {
    into.push([before, after]);
    gone.delete(before.path);
    come.delete(after.path);
  }

  // 1.
  const partners = await renamedDirectories(comparison, walked);
  const placeBelow = (path: string) => {
    const parent = partners.get(parentOf(path));
    return parent && `${parent.path}/${nameOf(path)}`;
  };
  for (const [path, entry] of await sorted(gone)) {
    const place = entry.place ?? placeBelow(path);
    if (place !== undefined) entry.place = place;
    if (entry.type !== 'directory') continue;
    const partner = partners.get(path) ?? atPlaceOf(entry);
    if (!partner) continue;
    partners.set(path, partner);
    match(entry, partner, partner.path === place ? inPlace : renamed);
  }
  for (const [path, { before, after, place = placeBelow(path) }] of walked.renamed) {
    (place === after.path ? inPlace : renamed).push([before, after]);
  }
  // 2.
  for (const entry of [...gone.values()]) {
    const other = atPlaceOf(entry);
    if (other && keyOf(entry) === keyOf(other)) match(entry, other, inPlace);
  }
  // 3.
  for (const [before, after] of await renamedFiles(comparison, walked)) match(before, after, renamed);
  // 4.
  for (const entry of [...gone.values()]) {
    const other = atPlaceOf(entry);
    if (other) match(entry, other, inPlace);
  }
  return { inPlace, renamed, removed: gone.values(), added: come.values() };
}

/** Renamed directories by their path in `from`, with what they are in `to`. Takes those out of `come`. */
async function renamedDirectories(
  { options, keyOf }: Comparison,
  { gone, come, renamed }: Walked,
): Promise<Map<string, TreeEntry>> {
  const partners = new Map<string, TreeEntry>();
  for (const [path, { after }] of renamed) partners.set(path, after);
  const isDirectory = ({ type }: TreeEntry) => type === 'directory';
  const candidates = Map.groupBy((await inOrder(come)).filter(isDirectory), keyOf);
  for (const [key, entries] of Map.groupBy((await inOrder(gone)).filter(isDirectory), keyOf)) {
    const others = candidates.get(key) ?? [];
    const [entry, other] = [entries[0]!, others[0]];
    // A key that several directories have tells nothing.
    if (entries.length !== 1 || others.length !== 1 || !other) continue;
    if (options.identity !== 'inode' && !(await hasSameNames(options.from, entry, options.to, other)))
      continue;
    partners.set(entry.path, other);
    come.delete(other.path);
  }
  return partners;
}

async function hasSameNames(from: string, entry: TreeEntry, to: string, other: TreeEntry): Promise<boolean> {
  const [one, two] = await Promise.all([readNames(from, entry.path), readNames(to, other.path)]);
  return one.length > 0 && one.length === two.length && new Set([...one, ...two]).size === one.length;
}

/** Files, links and devices of `from` that are at another path in `to`. */
async function renamedFiles({ options, keyOf }: Comparison, { gone, come }: Walked): Promise<Pair[]> {
  const { from, to, identity, signal } = options;
  const pairs: Pair[] = [];
  const candidates = Map.groupBy(await inOrder(come), keyOf);
  for (const [key, entries] of Map.groupBy(await inOrder(gone), keyOf)) {
    if (entries[0]!.type === 'directory') continue;
    const others = candidates.get(key) ?? [];
    for (const entry of entries) {
      const other = others[0];
      if (!other) break;
      // Without a certain identity the content must be equal too.
      if (identity !== 'inode' && (await differsInContent([from, entry], [to, other], { signal }))) continue;
      others.shift();
      pairs.push([entry, other]);
    }
  }
  return pairs;
}

function sorted<T>(entries: Map<string, T>): Promise<[string, T][]> {
  return sortInTurns([...entries], ([a], [b]) => (a < b ? -1 : 1));
}

async function inOrder(entries: Map<string, TreeEntry>): Promise<TreeEntry[]> {
  return (await sorted(entries)).map(([, entry]) => entry);
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/'));
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
