import { CayError } from '@cay/sdk/protocol';
import { nextSlice } from '../../lib/slices.ts';
import { sortInTurns } from '../../lib/sort-in-turns.ts';
import type { BucketObject } from '../../s3/bucket.ts';

const LONGEST_NAME = 255;
const LONGEST_PATH = 1024;
const DEEPEST = 256;
export const MOST_FILES = 200_000;
const MOST_NAME_BYTES = 32 * 1024 * 1024;
const KEYS_IN_A_TURN = 4096;

/**
 * Objects by the path that their keys mean below a directory. Keys that end with a slash are directories, and
 * are left out. Rejects `failed_precondition` for a key that is no path, and for two of which one is a
 * directory of the other: whoever writes to a bucket chooses the keys. The owner is whom the work is counted
 * for.
 */
export async function objectPaths(
  objects: AsyncIterable<BucketObject>,
  prefix: string,
  owner: string,
): Promise<Map<string, BucketObject>> {
  const found = new Map<string, BucketObject>();
  const names = nameBytes();
  for await (const object of objects) {
    const path = object.key.slice(prefix.length);
    if (path === '' || path.endsWith('/')) continue;
    requirePath(path);
    names.add(path);
    found.set(path, object);
    if (found.size > MOST_FILES)
      throw new CayError('resource_exhausted', `There are more than ${MOST_FILES} objects below the prefix`, {
        hint: 'give a longer prefix',
      });
  }
  await requireNoFileAbove(found, owner);
  return found;
}

/**
 * Rejects if one path is a directory of another. Sorted with the slash before all other characters, a path
 * comes right before what is below it; to look for each directory of each path would take much longer.
 */
async function requireNoFileAbove(found: ReadonlyMap<string, BucketObject>, owner: string): Promise<void> {
  const keys = await sortInTurns(
    Array.from(found.keys(), (path) => path.replaceAll('/', '\0')),
    (one, other) => (one < other ? -1 : 1),
  );
  for (const [at, key] of keys.entries()) {
    if (at % KEYS_IN_A_TURN === 0) await nextSlice(owner);
    if (keys[at + 1]?.startsWith(`${key}\0`) !== true) continue;
    const file = key.replaceAll('\0', '/');
    throw unusable(
      keys[at + 1]!.replaceAll('\0', '/'),
      `"${file.slice(0, 100)}" is an object too, and cannot be a directory`,
    );
  }
}

/** Counts names of one side of a transfer, which are kept while it goes on. Throws `resource_exhausted`. */
export function nameBytes(): { add(path: string): void } {
  let bytes = 0;
  return {
    add(path) {
      bytes += path.length;
      if (bytes > MOST_NAME_BYTES)
        throw new CayError(
          'resource_exhausted',
          `The names of all files together are longer than ${MOST_NAME_BYTES} bytes`,
          { hint: 'give a longer prefix, or a directory with less in it' },
        );
    },
  };
}

export function requirePath(path: string): void {
  if (path.length > LONGEST_PATH) throw unusable(path, `it is longer than ${LONGEST_PATH}`);
  if (/\p{Cc}/u.test(path)) throw unusable(path, 'it has control characters');
  const names = path.split('/');
  if (names.length > DEEPEST) throw unusable(path, `it is in more than ${DEEPEST} directories`);
  for (const name of names) {
    if (name === '' || name === '.' || name === '..') throw unusable(path, `"${name}" is no name of a file`);
    if (Buffer.byteLength(name) > LONGEST_NAME)
      throw unusable(path, `a name is longer than ${LONGEST_NAME} bytes`);
  }
}

function unusable(path: string, why: string): CayError {
  const shown = path.replace(/\p{Cc}/gu, '?').slice(0, 100);
  return new CayError('failed_precondition', `The object "${shown}" cannot become a file: ${why}`, {
    hint: 'rename it in the bucket, or give a prefix that does not have it',
  });
}
