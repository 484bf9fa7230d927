export interface BucketObject {
  key: string;
  sizeBytes: number;
  /** Without quotes. */
  etag: string;
  modifiedAtMs: number;
}

export interface BucketCall {
  signal?: AbortSignal | undefined;
}

export interface PutOptions extends BucketCall {
  /** Known before: the size of parts fits it. What has another length is rejected. */
  sizeBytes?: number | undefined;
  /** Rejects `conflict` if there is an object of that key. */
  ifAbsent?: boolean | undefined;
  /** Rejects `conflict` unless the object has this ETag. */
  ifMatch?: string | undefined;
}

export interface GetOptions extends BucketCall {
  /** As it was listed or asked for: saves a request. Rejects `conflict` if the object is another by now. */
  object?: BucketObject | undefined;
}

/** Bytes of an object as it was listed or looked at. */
export interface ReadOptions extends BucketCall {
  from: number;
  /** Behind the last byte, and not behind the end of the object. */
  to: number;
}

export interface ListOptions extends BucketCall {
  /**
   * Objects with this in their key behind the prefix are shown as one, which ends with it and has no ETag.
   */
  delimiter?: string | undefined;
}

export interface PendingUpload {
  key: string;
  id: string;
  startedAtMs: number;
}

export interface BucketCredentials {
  readonly accessKeyId: string;
  readonly secretKey: string;
  readonly sessionToken?: string | undefined;
}

/**
 * A Bucket is a place for objects behind the S3 protocol: AWS, or any server that speaks it.
 *
 * **Terms.** An *object* is a sequence of bytes with a *key*. Keys here are those below the prefix of the
 * bucket's address, which is put before them and taken off again. An *ETag* is the server's name for one
 * content of an object.
 *
 * **Who calls it.** The store driver `storage/s3.ts`, a few calls a minute, each of many gigabytes; and the
 * buckets of projects, thousands of calls for small objects.
 *
 * **Faults.** A call is repeated with growing pauses when the server answers 429 or 5xx, asks to slow down,
 * is silent or hangs up. A download goes on at the byte where it broke. What is sent and what comes is
 * bounded in memory: a few parts of 8 MiB, more for objects beyond 16 GB.
 *
 * **Integrity.** The server checks the SHA-256 of each request. A CRC-32 of the whole object is stored with
 * it by servers that know checksums. What is read is compared with the checksum that the server has: CRC-32,
 * SHA-256, or an ETag that is an MD5. An object that was put in parts by others, without such a checksum, is
 * checked for its length alone.
 *
 * **Errors.** `not_found` (bucket, or key of `get`), `permission_denied` (credentials, or an address that may
 * not be reached), `conflict` (a condition does not hold, or an object changed while it was read),
 * `unavailable` (the server does not answer after all attempts, or gave bytes that do not match their
 * checksum), `failed_precondition` (another region), `resource_exhausted`, `invalid_argument`. No error has a
 * credential in it. An aborted signal rejects with its reason.
 *
 * **Concurrency.** Any calls may run at once, also on one key; the server decides their order. `ifAbsent` and
 * `ifMatch` make a `put` fail where another was earlier. A bucket has a bounded number of connections: a call
 * beyond it waits.
 *
 * **Cost.** One request each; `list` one for 1,000 objects, `remove` one for 1,000 keys, `get` one more to
 * look at the object unless it is given. Objects beyond a part of 8 MiB take a request for each part, four
 * side by side.
 *
 *     const bucket = openBucket({ address, credentials, reach: 'private' });
 *     const { etag } = await bucket.put('notes/a', Readable.from([Buffer.from('one')]), { ifAbsent: true });
 *     for await (const chunk of bucket.get('notes/a')) process.stdout.write(chunk);
 *     await bucket.put('notes/a', Readable.from([Buffer.from('two')]), { ifMatch: etag });
 *     for await (const { key, sizeBytes } of bucket.list('notes/')) show(key, sizeBytes);
 *     await bucket.remove(['notes/a']);
 *     bucket.close();
 */
export interface Bucket {
  /** Resolves `undefined` if there is no such object. */
  head(key: string, call?: BucketCall): Promise<BucketObject | undefined>;
  /** Reads no faster than the consumer iterates. The first read rejects `not_found` if there is none. */
  get(key: string, options?: GetOptions): AsyncIterable<Buffer>;
  /**
   * Some bytes of an object, which have no checksum. Rejects `conflict` if it is another by now, `not_found`
   * if it is gone.
   */
  read(object: BucketObject, options: ReadOptions): Promise<Buffer>;
  /**
   * Another object with the same content, made by the server. Rejects `conflict` if the object is another by
   * now, `resource_exhausted` beyond 5 GiB.
   */
  copy(object: BucketObject, to: string, call?: BucketCall): Promise<BucketObject>;
  /** Whole or not at all. Passes on what the source rejects with. */
  put(key: string, content: AsyncIterable<Uint8Array>, options?: PutOptions): Promise<BucketObject>;
  /** Absent ones are removed already. */
  remove(keys: readonly string[], call?: BucketCall): Promise<void>;
  /** In the order of keys, page by page. */
  list(prefix?: string, options?: ListOptions): AsyncIterable<BucketObject>;
  /** Uploads in parts that were begun and not finished. */
  uploads(prefix?: string, call?: BucketCall): AsyncIterable<PendingUpload>;
  abortUpload(upload: Pick<PendingUpload, 'key' | 'id'>, call?: BucketCall): Promise<void>;
  /** An address with which whoever has it may read or write one object, until it expires. */
  presign(method: 'GET' | 'PUT', key: string, expiresSeconds: number): Promise<string>;
  close(): void;
}
