import { constants } from 'node:os';
import { Semaphore } from '../lib/semaphore.ts';
import type { Bucket, BucketObject } from '../s3/bucket.ts';
import { FuseError } from './fuse/fuse-error.ts';

const MOST_MOVED = 1_000;
const COPIES_AT_ONCE = 8;
const MOVE_MS = 10 * 60_000;

/**
 * Gives all objects another prefix. All are copied before the first is removed: who is interrupted has both.
 * `copied` is called in between; if it throws, none is removed.
 */
export async function moveObjects(
  bucket: Bucket,
  from: string,
  to: string,
  copied: () => void,
): Promise<void> {
  const signal = AbortSignal.timeout(MOVE_MS);
  const objects = await below(bucket, from, signal);
  const turns = new Semaphore(COPIES_AT_ONCE);
  await Promise.all(
    objects.map((object) =>
      turns.run(async () => {
        const key = to + object.key.slice(from.length);
        // Some servers copy no object whose key is that of a directory.
        if (key.endsWith('/') && object.sizeBytes === 0) await bucket.put(key, nothing(), { signal });
        else await bucket.copy(object, key, { signal });
      }),
    ),
  );
  copied();
  await removeObjects(bucket, objects, signal);
}

/** Removes all objects below a prefix. */
export async function removeAll(bucket: Bucket, prefix: string): Promise<void> {
  const signal = AbortSignal.timeout(MOVE_MS);
  await removeObjects(bucket, await below(bucket, prefix, signal), signal);
}

async function below(bucket: Bucket, prefix: string, signal: AbortSignal): Promise<BucketObject[]> {
  const objects: BucketObject[] = [];
  for await (const object of bucket.list(prefix, { signal })) {
    objects.push(object);
    // Programs then copy the files one by one, and remove them.
    if (objects.length > MOST_MOVED) throw new FuseError(constants.errno.EXDEV);
  }
  return objects;
}

async function removeObjects(
  bucket: Bucket,
  objects: readonly BucketObject[],
  signal: AbortSignal,
): Promise<void> {
  await bucket.remove(
    objects.map(({ key }) => key),
    { signal },
  );
}

/** The content of an empty object. */
export async function* nothing(): AsyncGenerator<Buffer, void> {}
