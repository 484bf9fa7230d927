import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FileChange } from '@cay/sdk/protocol';
import { isCayError } from '@cay/sdk/protocol';
import { attempt, output } from './command.ts';
import { compareTrees } from './compare/compare-trees.ts';
import type { Touched } from './compare/comparison.ts';
import { readSendStream } from './send-stream.ts';
import { followCommands, type TouchedPaths } from './touched-paths.ts';
import { type ByteRange, readEntry, type TreeEntry } from './compare/tree-entry.ts';

interface TreesOptions {
  from: string;
  to: string;
  signal?: AbortSignal | undefined;
}

/** Paths handled before other work of the server gets a turn. */
const MARKS_AT_ONCE = 2000;
/** Listing the names of a file with many hard links takes a process each. */
const MAX_LINKED = 32;

/**
 * Compares two read-only subvolumes at a cost proportional to the difference: the kernel lists the paths that
 * were touched, and only those are compared. Resolves `undefined` where that is not possible or not worth it.
 */
export async function sendChanges({ from, to, signal }: TreesOptions): Promise<FileChange[] | undefined> {
  try {
    const stream = output(['btrfs', 'send', '-q', '--no-data', '-p', from, to], { signal });
    const paths = await followCommands(readSendStream(stream));
    const touched = await lookUp(paths, { from, to });
    return touched && (await compareTrees({ from, to, identity: 'inode', touched, signal }));
  } catch (error) {
    signal?.throwIfAborted();
    // Whatever the reason, a full comparison does not need the stream.
    if (isCayError(error)) return undefined;
    throw error;
  }
}

async function lookUp(paths: TouchedPaths, { from, to }: TreesOptions): Promise<Touched | undefined> {
  const [before, after] = [new Map<string, Set<string>>(), new Map<string, Set<string>>()];
  const ranges = new Map<string, readonly ByteRange[]>();
  const moved: [string, string][] = [];
  let marked = 0;
  for (const path of paths.from) {
    mark(before, path);
    if (++marked % MARKS_AT_ONCE === 0) await nextTurn();
  }
  let linked = 0;
  for (const file of paths.files) {
    mark(after, file.to);
    if (++marked % MARKS_AT_ONCE === 0) await nextTurn();
    if (file.ranges) ranges.set(file.to, file.ranges);
    if (file.from !== undefined && file.from !== file.to) moved.push([file.from, file.to]);
    if (!file.dirty || file.from === undefined) continue;
    const entry = await readEntry(to, file.to);
    if (!entry || entry.type === 'directory' || entry.stat.nlink === 1n) continue;
    // The stream names a file with several hard links by one of them only.
    if (++linked > MAX_LINKED) return undefined;
    const names = await linksOf(to, entry);
    const origin = await readEntry(from, file.from);
    const former = origin && (await linksOf(from, origin));
    if (!names || !former) return undefined;
    for (const path of former) mark(before, path);
    for (const path of names) {
      mark(after, path);
      if (file.ranges) ranges.set(path, file.ranges);
    }
  }
  return {
    moved,
    names: (a, b) => new Set([...(before.get(a) ?? []), ...(after.get(b) ?? [])]),
    ranges: (path) => ranges.get(path),
  };
}

/** All paths of a file; `undefined` where not all can be found. */
async function linksOf(root: string, entry: TreeEntry): Promise<string[] | undefined> {
  if (entry.stat.nlink === 1n) return [entry.path];
  const { stdout, exitCode } = await attempt([
    'btrfs',
    'inspect-internal',
    'inode-resolve',
    String(entry.stat.ino),
    root,
  ]);
  const prefix = join(root, '/');
  const lines = stdout.split('\n').filter((line) => line.startsWith(prefix));
  const paths = lines.map((line) => Buffer.from(line.slice(prefix.length - 1)).toString('latin1'));
  if (exitCode !== 0 || BigInt(new Set(paths).size) !== entry.stat.nlink) return undefined;
  // A name may contain line breaks or be no UTF-8, so the parsed path must exist.
  for (const path of paths) if ((await readEntry(root, path))?.stat.ino !== entry.stat.ino) return undefined;
  return paths;
}

/** Adds a path and all its parent directories. */
function mark(names: Map<string, Set<string>>, path: string): void {
  for (let at = path; at !== '';) {
    const slash = at.lastIndexOf('/');
    const [above, name] = [at.slice(0, slash), at.slice(slash + 1)];
    const known = names.get(above);
    if (known?.has(name)) return;
    if (known) known.add(name);
    else names.set(above, new Set([name]));
    at = above;
  }
}
