/** A bucket in memory, for tests: it says what a server would, and fails when it is told to. */
import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import type { Bucket, BucketObject } from '../../s3/bucket.ts';

export interface MemoryBucket extends Bucket {
  readonly objects: Map<string, Buffer>;
  /** Called before each call. What it throws is its failure; `'lose'` fails it after it was done. */
  fault: (call: keyof Bucket, key: string) => 'lose' | undefined | Promise<'lose' | undefined>;
  /** How often something was asked, by call. */
  readonly calls: Map<string, number>;
  text(key: string): string | undefined;
}

const PAGE = 1_000;
const away = () => new CayError('unavailable', 'The answer was lost');

export function memoryBucket(): MemoryBucket {
  const objects = new Map<string, Buffer>();
  const times = new Map<string, number>();
  const calls = new Map<string, number>();

  function objectOf(key: string): BucketObject | undefined {
    const content = objects.get(key);
    if (!content) return undefined;
    return { key, sizeBytes: content.length, etag: etagOf(content), modifiedAtMs: times.get(key) ?? 0 };
  }

  async function doing<T>(call: keyof Bucket, key: string, work: () => T): Promise<Awaited<T>> {
    calls.set(call, (calls.get(call) ?? 0) + 1);
    const fault = await bucket.fault(call, key);
    const result = await work();
    if (fault === 'lose') throw away();
    return result;
  }

  function store(key: string, content: Buffer): BucketObject {
    objects.set(key, content);
    times.set(key, Date.now());
    return objectOf(key)!;
  }

  function require(object: BucketObject): Buffer {
    const content = objects.get(object.key);
    if (!content) throw new CayError('not_found', `"${object.key}" does not exist`);
    if (object.etag !== '' && etagOf(content) !== object.etag)
      throw new CayError('conflict', `"${object.key}" is another`);
    return content;
  }

  const bucket: MemoryBucket = {
    objects,
    calls,
    fault: () => undefined,
    text: (key) => objects.get(key)?.toString(),
    head: (key) => doing('head', key, () => objectOf(key)),
    async *get(key, { object } = {}) {
      const content = await doing('get', key, () => {
        if (object) return require(object);
        const found = objects.get(key);
        if (!found) throw new CayError('not_found', `"${key}" does not exist`);
        return found;
      });
      for (let at = 0; at < content.length; at += 64 * 1024) yield content.subarray(at, at + 64 * 1024);
    },
    read: (object, { from, to }) => doing('read', object.key, () => require(object).subarray(from, to)),
    copy: (object, to) => doing('copy', to, () => store(to, require(object))),
    async put(key, content, { ifAbsent, ifMatch, sizeBytes, signal } = {}) {
      const chunks: Uint8Array[] = [];
      for await (const chunk of content) chunks.push(chunk);
      const bytes = Buffer.concat(chunks);
      return doing('put', key, () => {
        signal?.throwIfAborted();
        if (sizeBytes !== undefined && sizeBytes !== bytes.length)
          throw new CayError('conflict', 'It changed');
        const there = objectOf(key);
        if (ifAbsent && there) throw new CayError('conflict', `"${key}" is there`);
        if (ifMatch !== undefined && there?.etag !== ifMatch)
          throw new CayError('conflict', `"${key}" is another`);
        return store(key, bytes);
      });
    },
    async remove(keys) {
      for (const key of keys) await doing('remove', key, () => objects.delete(key));
    },
    async *list(prefix = '', { delimiter } = {}) {
      const found = new Map<string, BucketObject>();
      for (const key of [...objects.keys()].filter((one) => one.startsWith(prefix)).sort()) {
        const end = delimiter === undefined ? -1 : key.indexOf(delimiter, prefix.length);
        const shown = end < 0 ? key : key.slice(0, end + 1);
        if (end < 0) found.set(shown, objectOf(key)!);
        else found.set(shown, { key: shown, sizeBytes: 0, etag: '', modifiedAtMs: 0 });
      }
      let count = 0;
      for (const object of found.values()) {
        if (count++ % PAGE === 0) await doing('list', prefix, () => {});
        yield object;
      }
      if (count === 0) await doing('list', prefix, () => {});
    },
    async *uploads() {},
    abortUpload: async () => {},
    presign: async () => '',
    close() {},
  };
  return bucket;
}

function etagOf(content: Buffer): string {
  return createHash('md5').update(content).digest('hex');
}
