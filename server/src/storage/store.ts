/**
 * A Store keeps large things by name, away from where they came from: a directory on another disk, a bucket.
 * It is where sandboxes go that nobody has used for long.
 *
 * An object is there whole or not at all, whatever happens while it is put, and never changes: putting a name
 * again replaces the object, and who reads the old one reads it to its end. Names are 1 to 128 of
 * `[A-Za-z0-9_.-]` and begin with a letter or digit; there are no folders. Every other name rejects
 * `invalid_argument` everywhere.
 */
export interface StoredObject {
  name: string;
  sizeBytes: number;
}

export interface StoreCallOptions {
  signal?: AbortSignal;
}

export interface Store {
  readonly name: string;
  /**
   * Resolves when the object is there for good, after a loss of power too. Rejects what the source rejects,
   * or `resource_exhausted` when there is no room, and then what was there before still is.
   */
  put(name: string, content: AsyncIterable<Uint8Array>, options?: StoreCallOptions): Promise<StoredObject>;
  /** At the reader's pace. Rejects `not_found`. */
  get(name: string, options?: StoreCallOptions): AsyncIterable<Uint8Array>;
  /** Nothing if there is no such object. */
  stat(name: string, options?: StoreCallOptions): Promise<StoredObject | undefined>;
  /** Absent is done. */
  remove(name: string, options?: StoreCallOptions): Promise<void>;
  /** Objects whose names begin with `prefix`, in the order of names. */
  list(prefix?: string, options?: StoreCallOptions): Promise<StoredObject[]>;
  close(): Promise<void>;
}
