/**
 * A store in a bucket. Each object is one object of the bucket, below the prefix of its address.
 *
 * Several servers may share a bucket. Opening takes back uploads that were begun more than a day ago: the
 * server that began them is gone.
 */
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Bucket } from '../s3/bucket.ts';
import { isObjectName, requireObjectName, requirePrefix } from './object-name.ts';
import type { Store } from './store.ts';

export interface S3StoreOptions {
  /** Closed with the store. */
  bucket: Bucket;
  /** How old an upload has to be to be taken back. Default: a day. */
  abandonedMs?: number;
}

const DAY_MS = 24 * 3600 * 1000;

/** Rejects if the bucket does not answer, is not there, or may not be read. */
export async function openS3Store({ bucket, abandonedMs = DAY_MS }: S3StoreOptions): Promise<Store> {
  try {
    for await (const upload of bucket.uploads()) {
      const { startedAtMs } = upload;
      if (startedAtMs > 0 && Date.now() - startedAtMs >= abandonedMs) await bucket.abortUpload(upload);
    }
  } catch (error) {
    // A server that does not list uploads keeps them from us alone. That it answers at all is checked so.
    if (!isCayError(error, 'unsupported')) throw error;
    await bucket.head('cay');
  }
  return {
    name: 's3',
    async put(name, content, options = {}) {
      requireObjectName(name);
      const { sizeBytes } = await bucket.put(name, content, options);
      return { name, sizeBytes };
    },
    async *get(name, options = {}) {
      requireObjectName(name);
      try {
        yield* bucket.get(name, options);
      } catch (error) {
        if (!isCayError(error, 'not_found') || error.details?.['s3Code'] === 'NoSuchBucket') throw error;
        throw new CayError('not_found', `No object "${name}" in the store`, { cause: error });
      }
    },
    async stat(name, options = {}) {
      requireObjectName(name);
      const found = await bucket.head(name, options);
      return found && { name, sizeBytes: found.sizeBytes };
    },
    async remove(name, options = {}) {
      requireObjectName(name);
      await bucket.remove([name], options);
    },
    async list(prefix = '', options = {}) {
      requirePrefix(prefix);
      const found = await Array.fromAsync(bucket.list(prefix, options));
      return found
        .filter(({ key }) => isObjectName(key))
        .map(({ key: name, sizeBytes }) => ({ name, sizeBytes }))
        .toSorted((one, other) => (one.name < other.name ? -1 : 1));
    },
    close: async () => bucket.close(),
  };
}
