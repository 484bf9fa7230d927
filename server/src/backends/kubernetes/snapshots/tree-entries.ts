/** Which entries of a tree, as a tar archive, are kept, and which a pod gets. */
import { CayError } from '@cay/sdk/protocol';
import { ignoreFailure } from '../../../lib/in-background.ts';
import { BLOCK, encodeHeader } from '../../../lib/tar/header.ts';
import { tarEnd } from '../../../lib/tar/pack.ts';
import { withoutRoot } from '../../../lib/tar/plain-name.ts';
import type { RawEntry } from '../../../lib/tar/raw-entries.ts';
import { withTimeout } from '../../../lib/timeout.ts';
import { passEntries } from '../../support/pass-entries.ts';

/** As they are in archives: without the root, one character for each byte. */
const nameOf = (directory: string) => Buffer.from(directory.slice(1)).toString('latin1');
const isIn = (name: string, directory: string) => name === directory || name.startsWith(`${directory}/`);

/** The names that are packed for these directories. */
export const packedNames = (directories: readonly string[]): string[] =>
  directories.map((directory) => directory.slice(1));

/** A tree before which the directories are that its own directories lie in. */
export async function* withParents(
  tree: AsyncIterable<Uint8Array>,
  directories: readonly string[],
): AsyncGenerator<Uint8Array, void, undefined> {
  const parents = new Set(directories.flatMap(parentsOf));
  const rights = { mode: 0o755, uid: 0, gid: 0, modifiedAtMs: 0, target: '', sizeBytes: 0 };
  for (const name of parents)
    if (!directories.includes(`/${name}`)) yield encodeHeader({ name, type: 'directory', ...rights });
  yield* tree;
}

function parentsOf(directory: string): string[] {
  const parts = directory.slice(1).split('/');
  return parts.slice(1).map((_, at) => parts.slice(0, at + 1).join('/'));
}

/**
 * The entries below these directories, and with `parents` also the directories above them. What something
 * else is mounted over, `except`, is left out.
 */
export async function* onlyIn(
  tree: AsyncIterable<Uint8Array>,
  directories: readonly string[],
  { parents = false, except = [] }: { parents?: boolean; except?: readonly string[] } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const own = directories.map(nameOf);
  const above = new Set(parents ? directories.flatMap(parentsOf) : []);
  const mounted = except.map(nameOf);
  const isOwn = (name: string) =>
    own.some((directory) => isIn(name, directory)) && !mounted.some((point) => isIn(name, point));
  yield* passEntries(tree, (entry) => {
    if (entry.letter === '5' && above.has(entry.name)) return entry.head;
    if (!isOwn(entry.name)) return undefined;
    if (entry.letter === '1' && !isOwn(withoutRoot(entry.target))) throw leadsOut(entry);
    return entry.head;
  });
  yield tarEnd();
}

function leadsOut({ name, target }: RawEntry): CayError {
  const [shown, first] = [name, target].map((each) => JSON.stringify(each.slice(0, 200)));
  return new CayError(
    'unsupported',
    `${shown} is another name of ${first}, which lies where a pod has the files of its image`,
    { hint: 'make it a file of its own, take another snapshot, and try again' },
  );
}

/** Rejects `deadline_exceeded` if no bytes come for so long. */
export async function* unlessSilent(
  tree: AsyncIterable<Uint8Array>,
  ms: number,
  action: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  const iterator = tree[Symbol.asyncIterator]();
  const late = () =>
    new CayError('deadline_exceeded', `Cannot ${action}: its guest has sent nothing for ${ms} ms`);
  try {
    for (;;) {
      const next = await withTimeout(iterator.next(), ms, late);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A source that is silent is not waited for.
    void Promise.resolve(iterator.return?.()).catch(ignoreFailure);
  }
}

/** Rejects `resource_exhausted` for a tree with more bytes, headers included. */
export async function* bounded(
  tree: AsyncIterable<Uint8Array>,
  most: number,
  action: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const part of tree) {
    bytes += part.length;
    if (bytes > most)
      throw new CayError('resource_exhausted', `Cannot ${action}: it has more than ${most} bytes of files`);
    yield part;
  }
}

/**
 * The most bytes of a tree whose files have so many on a disk: a file with holes, or without content, has
 * more in an archive than on a disk.
 */
export const mostTreeBytes = (diskBytes: number): number => Math.ceil(diskBytes * 1.25) + 131_072 * BLOCK;
