/** Where archives of sandboxes are kept: a directory, or later a bucket. Names are paths of letters, digits, `_`, `-` and `/`. */
export interface ArchiveStore {
  /** Whole or not at all: a name that can be read has all that was put. Replaces what was there. */
  put(name: string, data: AsyncIterable<Uint8Array>): Promise<unknown>;
  /** Rejects `not_found`. */
  get(name: string): AsyncIterable<Uint8Array> | Promise<AsyncIterable<Uint8Array>>;
  /** Absent is done. */
  remove(name: string): Promise<void>;
}
