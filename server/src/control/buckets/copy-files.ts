/**
 * Copies between a bucket and a directory of a sandbox, through the guest, so that it works on every backend.
 */
import { CayError, isCayError, type FileInfo } from '@cay/sdk/protocol';
import type { Files } from '../../guest/guest.ts';
import { fileHeader, padding, tarEnd } from '../../lib/tar/pack.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import type { Bucket, BucketObject } from '../../s3/bucket.ts';
import { PART_BYTES } from '../../s3/part-size.ts';
import { MOST_FILES, nameBytes, requirePath } from './object-paths.ts';

interface CallOptions {
  signal: AbortSignal;
}

/** Objects up to this size are read before their turn, so many of them. */
const SMALL_BYTES = 1024 * 1024;
const AHEAD = 24;
/** Files that are written to the bucket at once; of those that go in parts, which take more memory, one. */
const UPLOADS = 8;
const DEPTH = 256;

export interface LocalTree {
  /** Regular files by path below the directory. */
  files: Map<string, FileInfo>;
  /** What is neither a file nor a directory. */
  skipped: number;
}

/** An absent directory is an empty one. */
export async function localTree(
  files: Files,
  directory: string,
  { signal }: CallOptions,
): Promise<LocalTree> {
  const tree: LocalTree = { files: new Map(), skipped: 0 };
  const names = nameBytes();
  try {
    for await (const info of files.list(directory, { depth: DEPTH, signal })) {
      if (info.type === 'directory') continue;
      if (info.type !== 'file') {
        tree.skipped++;
        continue;
      }
      const path = info.path.slice(directory.length + 1);
      requirePath(path);
      names.add(path);
      tree.files.set(path, info);
      if (tree.files.size > MOST_FILES)
        throw new CayError('resource_exhausted', `"${directory}" has more than ${MOST_FILES} files`);
    }
  } catch (error) {
    if (!isCayError(error, 'not_found')) throw error;
  }
  return tree;
}

/**
 * Writes objects as files. Each is replaced as a whole; if it rejects, some are written and others are not.
 */
export async function copyDown(
  bucket: Bucket,
  files: Files,
  directory: string,
  objects: readonly (readonly [path: string, object: BucketObject])[],
  { signal }: CallOptions,
): Promise<{ files: number; bytes: number }> {
  const bytes = objects.reduce((sum, [, { sizeBytes }]) => sum + sizeBytes, 0);
  if (objects.length === 0) {
    await files.mkdir(directory, { signal });
    return { files: 0, bytes };
  }
  // What the source rejects with is the error, whatever the guest makes of its end.
  let failure: { error: unknown } | undefined;
  const source = async function* () {
    try {
      yield* tarOf(bucket, objects, signal);
    } catch (error) {
      failure = { error };
      throw error;
    }
  };
  try {
    await files.untar(directory, source(), { signal });
  } catch (error) {
    throw failure ? failure.error : error;
  }
  return { files: objects.length, bytes };
}

async function* tarOf(
  bucket: Bucket,
  objects: readonly (readonly [path: string, object: BucketObject])[],
  given: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  const stop = new AbortController();
  const signal = AbortSignal.any([given, stop.signal]);
  const window: { path: string; object: BucketObject; content: Promise<Buffer> | undefined }[] = [];
  let next = 0;
  const fill = () => {
    while (window.length < AHEAD && next < objects.length) {
      const [path, object] = objects[next++]!;
      const content = object.sizeBytes <= SMALL_BYTES ? collected(bucket, object, signal) : undefined;
      // It is awaited when it is its turn, or never if an earlier one fails.
      content?.catch(() => {});
      window.push({ path, object, content });
    }
  };
  try {
    for (fill(); window.length > 0; fill()) {
      const { path, object, content } = window.shift()!;
      const whole = await content;
      const { sizeBytes, modifiedAtMs } = object;
      yield fileHeader(path, sizeBytes, { modifiedAtMs });
      if (whole === undefined) yield* bucket.get(object.key, { object, signal });
      else if (whole.length > 0) yield whole;
      const rest = padding(sizeBytes);
      if (rest.length > 0) yield rest;
    }
    yield tarEnd();
  } finally {
    stop.abort(new CayError('cancelled', 'The reader has stopped'));
  }
}

async function collected(bucket: Bucket, object: BucketObject, signal: AbortSignal): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(bucket.get(object.key, { object, signal })));
}

/** Writes files as objects, several at once. Calls `onCopied` for each that the bucket has. */
export async function copyUp(
  bucket: Bucket,
  files: Files,
  directory: string,
  { paths, prefix }: { paths: readonly string[]; prefix: string },
  onCopied: (path: string, info: FileInfo, object: BucketObject) => void,
  { signal: given }: CallOptions,
): Promise<{ files: number; bytes: number }> {
  const stop = new AbortController();
  const signal = AbortSignal.any([given, stop.signal]);
  const queue = paths.values();
  const large = new Semaphore(1);
  let bytes = 0;
  let failure: { error: unknown } | undefined;
  const work = async () => {
    for (const path of queue) {
      signal.throwIfAborted();
      const { info, data } = await files.read(`${directory}/${path}`, { signal });
      const put = () => bucket.put(prefix + path, data, { sizeBytes: info.sizeBytes, signal });
      const object = await (info.sizeBytes < PART_BYTES ? put() : large.run(put));
      bytes += object.sizeBytes;
      onCopied(path, info, object);
    }
  };
  const workers = Array.from({ length: Math.min(UPLOADS, paths.length) }, () =>
    work().catch((error: unknown) => {
      failure ??= { error };
      stop.abort(error);
    }),
  );
  await Promise.all(workers);
  if (failure) throw failure.error;
  return { files: paths.length, bytes };
}
