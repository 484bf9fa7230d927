export interface StoredObject {
  name: string;
  sizeBytes: number;
}

export interface StoreCallOptions {
  /** Aborting it rejects the call with the signal's reason. An aborted `put` leaves the old object. */
  signal?: AbortSignal;
}

/**
 * A Store keeps large objects by name: a directory on this machine, a mounted disk, a bucket. The control
 * plane keeps archived sandboxes in it.
 *
 * **Terms.** An *object* is a sequence of bytes with a name. It is immutable: `put` replaces an object as a
 * whole, it never changes one. There are no folders. A *name* has 1 to 128 characters of `[A-Za-z0-9_.-]` and
 * starts with a letter or a digit. Every method rejects any other name, and any non-empty prefix that no name
 * can start with, with `invalid_argument`. Drivers check with `requireObjectName` and `requirePrefix` of
 * `object-name.ts`.
 *
 * **Who calls it.** Archiving a sandbox puts one object, waking or exporting it gets one, deleting it removes
 * one, and recovery after a restart lists all of them. So there are a few calls a minute, each of up to many
 * gigabytes. The contract sets no size limit; a driver that has one rejects `resource_exhausted` beyond it. A
 * driver streams and holds at most a few megabytes of an object in memory.
 *
 * **Consistency.** A resolved `put` or `remove` is visible to every later `get`, `stat` and `list` (read
 * after write, list after put). While a `put` runs, readers see the old object or no object, never a part of
 * the new one. A `get` that has started reads the object that it found to its end, even if it is replaced or
 * removed meanwhile; or it rejects `conflict`, where a driver reads large objects by several requests. Of two
 * concurrent puts of one name the one that finishes last wins, whole.
 *
 * **Concurrency.** Any calls may run at once, also on one name, and from several servers that share a store.
 *
 * **Crashes.** After a crash during `put` the old object, or the absence of one, is unchanged. The driver
 * removes partial uploads when it is opened next; where several servers share a store, those that are a day
 * old.
 *
 * **Errors.** `invalid_argument` (name), `not_found` (`get` only), `resource_exhausted` (no space), and
 * `unavailable` where the store is behind a network and does not answer. What is sealed with another key, or
 * was changed, is `failed_precondition` (`sealed-store.ts`). `put` passes on what its source rejects with.
 * Nothing is retried by the caller within one call.
 *
 *     const store = await openDirectoryStore({ dir: '/mnt/archives' });
 *     const { sizeBytes } = await store.put('sb_1.cay', writeArchive(…));
 *     await store.stat('sb_1.cay');                  // { name: 'sb_1.cay', sizeBytes }
 *     for await (const chunk of store.get('sb_1.cay')) await unpack(chunk);
 *     await store.list('sb_');                       // in the order of names
 *     await store.remove('sb_1.cay');
 *     await store.remove('sb_1.cay');                // no error: already absent
 *     await store.close();
 */
export interface Store {
  readonly name: string;
  /**
   * Stores the object. Resolves when it is durable: it survives a loss of power. If it rejects, the object
   * that was there before still is.
   */
  put(name: string, content: AsyncIterable<Uint8Array>, options?: StoreCallOptions): Promise<StoredObject>;
  /**
   * Reads the object, no faster than the consumer iterates. The first read rejects `not_found` if there is no
   * such object.
   */
  get(name: string, options?: StoreCallOptions): AsyncIterable<Uint8Array>;
  /** Resolves `undefined` if there is no such object. */
  stat(name: string, options?: StoreCallOptions): Promise<StoredObject | undefined>;
  /** Removing an absent object succeeds. */
  remove(name: string, options?: StoreCallOptions): Promise<void>;
  /** Objects whose names start with `prefix`, in the order of names. Costs time linear in their number. */
  list(prefix?: string, options?: StoreCallOptions): Promise<StoredObject[]>;
  /** Releases connections and files. Stored objects stay. */
  close(): Promise<void>;
}
