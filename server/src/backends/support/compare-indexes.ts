/**
 * Compares two indexes of trees.
 *
 * An index does not say which file is which, so a rename is a guess: a file that is gone and one that has
 * come with the same content, and a directory that is gone and one that has come with mostly the same names
 * in it. Where several fit, the first in the order of paths is taken.
 */
import type { FileChange } from '@cay/sdk/protocol';
import type { IndexedFile, TreeIndex } from './tree-index.ts';

const NO_DIFFERENCE = { content: false, mode: false, owner: false };

export function compareIndexes(from: TreeIndex, to: TreeIndex): FileChange[] {
  const gone = new Map([...from].filter(([path, file]) => to.get(path)?.type !== file.type));
  const come = new Map([...to].filter(([path, file]) => from.get(path)?.type !== file.type));
  const moves = renamedDirectories(gone, come);
  const changes: FileChange[] = [];

  for (const [path, file] of to) {
    const before = from.get(path);
    if (before?.type === file.type) pushDifference(changes, path, before, file);
  }
  for (const [was, is] of moves) {
    changes.push(renamed(is, was, gone.get(was)!, come.get(is)!));
    gone.delete(was);
    come.delete(is);
  }
  // What is below a directory that was moved is at its place if it is there too.
  for (const [was, is] of moves) {
    for (const [path, file] of below(gone, was)) {
      const place = is + path.slice(was.length);
      const now = come.get(place);
      if (now?.type !== file.type) continue;
      pushDifference(changes, place, file, now);
      gone.delete(path);
      come.delete(place);
    }
  }
  const byContent = Map.groupBy(
    [...gone].filter(([, { type, size }]) => type !== 'directory' && type !== 'other' && size > 0),
    ([, file]) => identityOf(file),
  );
  for (const [path, file] of [...come]) {
    const candidates = file.size > 0 ? byContent.get(identityOf(file)) : undefined;
    const origin = candidates?.shift();
    if (!origin) continue;
    changes.push(renamed(path, origin[0], origin[1], file));
    gone.delete(origin[0]);
    come.delete(path);
  }
  for (const [path, file] of gone)
    changes.push({
      path: text(path),
      change: 'removed',
      type: file.type,
      before: facts(file),
      ...NO_DIFFERENCE,
    });
  for (const [path, file] of come)
    changes.push({
      path: text(path),
      change: 'added',
      type: file.type,
      after: facts(file),
      ...NO_DIFFERENCE,
    });
  const rank = ({ change }: FileChange) => (change === 'removed' ? 0 : 1);
  return changes.sort((a, b) => Buffer.compare(key(a), key(b)) || rank(a) - rank(b));
}

const keys = new WeakMap<FileChange, Buffer>();

function key(change: FileChange): Buffer {
  let known = keys.get(change);
  if (!known) keys.set(change, (known = Buffer.from(change.path)));
  return known;
}

/** Topmost directories that are gone, each with the one that has come in its place. */
function renamedDirectories(
  gone: ReadonlyMap<string, IndexedFile>,
  come: ReadonlyMap<string, IndexedFile>,
): Map<string, string> {
  const moves = new Map<string, string>();
  const taken = new Set<string>();
  /** Of each file that has come, by name in its directory: which directories it is in. */
  const byFile = new Map<string, string[]>();
  for (const [path, file] of come) {
    if (file.type !== 'file' || file.size === 0) continue;
    const at = `${nameOf(path)}\0${file.content}`;
    const directories = byFile.get(at);
    if (!directories) byFile.set(at, [parentOf(path)]);
    else if (directories.length < 16) directories.push(parentOf(path));
  }
  for (const [path, { type }] of gone) {
    if (type !== 'directory' || isBelowAny(path, moves)) continue;
    const candidates = new Set<string>();
    for (const [inside, file] of below(gone, path)) {
      if (file.type !== 'file' || file.size === 0) continue;
      const steps = inside.slice(path.length).split('/').length - 2;
      for (let place of byFile.get(`${nameOf(inside)}\0${file.content}`) ?? []) {
        for (let up = 0; up < steps; up++) place = parentOf(place);
        candidates.add(place);
      }
      if (candidates.size > 16) break;
    }
    for (const candidate of candidates) {
      if (taken.has(candidate) || come.get(candidate)?.type !== 'directory') continue;
      if (!isAlike(path, candidate, gone, come)) continue;
      moves.set(path, candidate);
      taken.add(candidate);
      break;
    }
  }
  return moves;
}

/** Half of the names in one are in the other too. */
function isAlike(
  was: string,
  is: string,
  gone: ReadonlyMap<string, IndexedFile>,
  come: ReadonlyMap<string, IndexedFile>,
): boolean {
  const inside = below(gone, was);
  const shared = inside.filter(([path, file]) => come.get(is + path.slice(was.length))?.type === file.type);
  return shared.length * 2 >= inside.length;
}

/** Sorted once for each map, so that what is below a directory is one run of it. */
const sortedPaths = new WeakMap<ReadonlyMap<string, IndexedFile>, string[]>();

function below(files: ReadonlyMap<string, IndexedFile>, directory: string): [string, IndexedFile][] {
  let paths = sortedPaths.get(files);
  if (!paths) sortedPaths.set(files, (paths = [...files.keys()].sort()));
  const prefix = `${directory}/`;
  let [low, high] = [0, paths.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (paths[middle]! < prefix) low = middle + 1;
    else high = middle;
  }
  const found: [string, IndexedFile][] = [];
  for (; low < paths.length && paths[low]!.startsWith(prefix); low++) {
    const file = files.get(paths[low]!);
    if (file) found.push([paths[low]!, file]);
  }
  return found;
}

const isBelowAny = (path: string, moves: ReadonlyMap<string, string>) => {
  for (let at = parentOf(path); at !== ''; at = parentOf(at)) if (moves.has(at)) return true;
  return false;
};
const parentOf = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf('/')));
const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1);
const identityOf = ({ type, content, size }: IndexedFile) => `${type}\0${size}\0${content}`;

function pushDifference(changes: FileChange[], path: string, before: IndexedFile, after: IndexedFile): void {
  const difference = differenceOf(before, after);
  if (!difference.content && !difference.mode && !difference.owner) return;
  changes.push({
    path: text(path),
    change: 'modified',
    type: after.type,
    before: facts(before),
    after: facts(after),
    ...difference,
  });
}

const renamed = (path: string, was: string, before: IndexedFile, after: IndexedFile): FileChange => ({
  path: text(path),
  change: 'renamed',
  from: text(was),
  type: after.type,
  before: facts(before),
  after: facts(after),
  ...differenceOf(before, after),
});

const differenceOf = (before: IndexedFile, after: IndexedFile) => ({
  content: before.content !== after.content,
  mode: before.type !== 'symlink' && before.mode !== after.mode,
  owner: before.uid !== after.uid || before.gid !== after.gid,
});

const facts = ({ size, mode, uid, gid }: IndexedFile) => ({ size, mode, uid, gid });
const text = (path: string) => Buffer.from(path, 'latin1').toString();
