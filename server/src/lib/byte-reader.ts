import { BoundedBytes } from './bounded-bytes.ts';

/** The source ended in the middle of something. */
export class TruncatedError extends Error {
  constructor() {
    super('it is truncated');
  }
}

/** Reads a number of bytes at a time, however the source chunks them. */
export interface ByteReader {
  /** At most `length` bytes, none at the end. */
  some(length: number): Promise<Uint8Array>;
  /**
   * Exactly `length` bytes, or none if the source ends here. Throws `TruncatedError` if it ends in between.
   */
  exactly(length: number): Promise<Buffer>;
  close(): Promise<void>;
}

export function byteReader(data: AsyncIterable<Uint8Array>): ByteReader {
  const source = data[Symbol.asyncIterator]();
  let held: Uint8Array = new Uint8Array(0);
  const reader: ByteReader = {
    async some(length) {
      while (held.length === 0) {
        const next = await source.next();
        if (next.done) return held;
        held = next.value;
      }
      const part = held.subarray(0, length);
      held = held.subarray(part.length);
      return part;
    },
    async exactly(length) {
      const bytes = new BoundedBytes(length);
      while (bytes.length < length) {
        const part = await reader.some(length - bytes.length);
        if (part.length === 0) break;
        bytes.add(part);
      }
      if (bytes.length > 0 && bytes.length < length) throw new TruncatedError();
      return bytes.whole();
    },
    async close() {
      await source.return?.();
    },
  };
  return reader;
}
