/**
 * Compares two immutable trees.
 *
 * Files are matched by identity, not by path: a file found at another path was renamed, and a renamed
 * directory takes its content along. A path that holds another file of the same type was modified. A path
 * that holds a file of another type, or that was overwritten by a file from elsewhere, is reported twice:
 * removed, and then as what is there now. Times and extended attributes alone are no difference.
 *
 * Three steps: `walkTrees` pairs up what is at the same path and collects the rest, `matchEntries` finds out
 * what of the rest was renamed, and the pairs are compared here.
 */
import type { FileChange } from '@cay/sdk/protocol';
import { sortInTurns } from '../../../lib/sort-in-turns.ts';
import { openComparison, type CompareOptions, type Comparison, type Pair } from './comparison.ts';
import { matchEntries } from './match-entries.ts';
import { differsInContent, type TreeEntry } from './tree-entry.ts';
import { walkTrees } from './walk-trees.ts';

interface Found {
  path: string;
  change: FileChange;
}

export async function compareTrees(options: CompareOptions): Promise<FileChange[]> {
  const comparison = openComparison(options);
  const { inPlace, renamed, removed, added } = await matchEntries(comparison, await walkTrees(comparison));
  const found: Found[] = [];
  const compare = (isRenamed: boolean) => async (pair: Pair) => {
    const change = await compareEntries(comparison, pair, isRenamed);
    if (change) found.push(change);
  };
  await comparison.forEach(inPlace, compare(false));
  await comparison.forEach(renamed, compare(true));
  for (const entry of removed) found.push(changeOf('removed', entry, undefined));
  for (const entry of added) found.push(changeOf('added', undefined, entry));
  return (await sortInTurns(found, byPath)).map(({ change }) => change);
}

async function compareEntries(
  { options, keyOf, mayDiffer }: Comparison,
  [before, after]: Pair,
  isRenamed: boolean,
): Promise<Found | undefined> {
  const { from, to, touched, signal } = options;
  const ranges = touched && keyOf(before) === keyOf(after) ? touched.ranges(after.path) : undefined;
  const content =
    (ranges !== undefined || mayDiffer(before, after)) &&
    (await differsInContent([from, before], [to, after], { ranges, signal }));
  const mode = (before.stat.mode & 0o7777n) !== (after.stat.mode & 0o7777n);
  const owner = before.stat.uid !== after.stat.uid || before.stat.gid !== after.stat.gid;
  if (!isRenamed && !content && !mode && !owner) return undefined;
  return changeOf(isRenamed ? 'renamed' : 'modified', before, after, { content, mode, owner });
}

function changeOf(
  change: FileChange['change'],
  before: TreeEntry | undefined,
  after: TreeEntry | undefined,
  { content = false, mode = false, owner = false } = {},
): Found {
  const { path, type } = (after ?? before)!;
  return {
    path,
    change: {
      path: shown(path),
      change,
      ...(change === 'renamed' && { from: shown(before!.path) }),
      type,
      ...(before && { before: factsOf(before) }),
      ...(after && { after: factsOf(after) }),
      content,
      mode,
      owner,
    },
  };
}

/** By the bytes of the path; of two changes at one path, the removal comes first. */
function byPath(a: Found, b: Found): number {
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

/** Bytes that are not UTF-8 become U+FFFD. */
function shown(path: string): string {
  return path === '' ? '/' : Buffer.from(path, 'latin1').toString();
}
