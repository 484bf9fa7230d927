/**
 * A bucket of some bytes in memory, by which a machine is asked whether mounts work. No S3 server has a part
 * in it.
 */
import { createHash } from 'node:crypto';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Bucket, BucketObject } from '../s3/bucket.ts';
import type { BucketMountFacts, BucketSource } from './bucket-mounts.ts';

/** Sandboxes of probes mount it. A project may have a bucket of that name: then it gets that. */
export const PROBE_BUCKET = 'cay-probe-of-mounts';
export const PROBE_FILE = 'read-me';
export const PROBE_TEXT = 'a mount of a bucket works\n';
const MOST_BYTES = 64 * 1024;

/** Opens that bucket for those who are in no record, and all others as the source does. */
export async function openOrProbe(
  source: BucketSource | undefined,
  facts: BucketMountFacts,
): ReturnType<BucketSource['open']> {
  const isProbe = facts.bucket === PROBE_BUCKET;
  try {
    if (source) return await source.open(facts);
    if (!isProbe) throw new CayError('unavailable', 'Buckets cannot be opened yet');
  } catch (error) {
    if (!isProbe || !isCayError(error, 'not_found')) throw error;
  }
  const bounds = { project: `probe of ${facts.sandbox}`, requireMount() {}, requireBytes() {} };
  return { bucket: probeBucket(), readOnly: false, bounds };
}

export function probeBucket(): Bucket {
  const objects = new Map<string, Buffer>([[PROBE_FILE, Buffer.from(PROBE_TEXT)]]);
  const shown = (key: string): BucketObject | undefined => {
    const content = objects.get(key);
    if (!content) return undefined;
    const etag = createHash('md5').update(content).digest('hex');
    return { key, sizeBytes: content.length, etag, modifiedAtMs: 0 };
  };
  const contentOf = (key: string): Buffer => {
    const content = objects.get(key);
    if (!content) throw new CayError('not_found', `"${key}" does not exist`);
    return content;
  };
  return {
    head: async (key) => shown(key),
    async *get(key) {
      yield contentOf(key);
    },
    read: async ({ key }, { from, to }) => contentOf(key).subarray(from, to),
    async copy({ key }, to) {
      objects.set(to, contentOf(key));
      return shown(to)!;
    },
    async put(key, content) {
      const chunks = await Array.fromAsync(content);
      const all = [...objects.values(), ...chunks].reduce((sum, { length }) => sum + length, 0);
      if (all > MOST_BYTES) throw new CayError('resource_exhausted', 'It is for probes alone');
      objects.set(key, Buffer.concat(chunks));
      return shown(key)!;
    },
    async remove(keys) {
      for (const key of keys) objects.delete(key);
    },
    async *list(prefix = '') {
      for (const key of [...objects.keys()].sort()) if (key.startsWith(prefix)) yield shown(key)!;
    },
    async *uploads() {},
    abortUpload: async () => {},
    presign: async () => '',
    close() {},
  };
}
