import { CayError } from '@cay/sdk/protocol';
import type { BucketObject } from '../../s3/bucket.ts';

const LONGEST_NAME = 255;
const LONGEST_PATH = 1024;
export const MOST_FILES = 200_000;

/**
 * Objects by the path that their keys mean below a directory. Keys that end with a slash are directories, and are
 * left out. Rejects `failed_precondition` for a key that is no path, and for two of which one is a directory of the
 * other: whoever writes to a bucket chooses the keys.
 */
export async function objectPaths(
  objects: AsyncIterable<BucketObject>,
  prefix: string,
): Promise<Map<string, BucketObject>> {
  const found = new Map<string, BucketObject>();
  for await (const object of objects) {
    const path = object.key.slice(prefix.length);
    if (path === '' || path.endsWith('/')) continue;
    requirePath(path);
    found.set(path, object);
    if (found.size > MOST_FILES)
      throw new CayError('resource_exhausted', `There are more than ${MOST_FILES} objects below the prefix`, {
        hint: 'give a longer prefix',
      });
  }
  for (const path of found.keys())
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1))
      if (found.has(path.slice(0, at)))
        throw unusable(
          path,
          `"${path.slice(0, Math.min(at, 100))}" is an object too, and cannot be a directory`,
        );
  return found;
}

export function requirePath(path: string): void {
  if (path.length > LONGEST_PATH) throw unusable(path, `it is longer than ${LONGEST_PATH}`);
  if (/\p{Cc}/u.test(path)) throw unusable(path, 'it has control characters');
  for (const name of path.split('/')) {
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
