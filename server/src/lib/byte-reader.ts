/** Hands out as many bytes as are asked for, however the source cuts them. */
export interface ByteReader {
  /** At most `length` bytes, none at the end. */
  some(length: number): Promise<Uint8Array>;
  /** Exactly `length` bytes, or none if the source ends right here. Throws if it ends in between. */
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
      const parts: Uint8Array[] = [];
      let missing = length;
      while (missing > 0) {
        const part = await reader.some(missing);
        if (part.length === 0) break;
        parts.push(part);
        missing -= part.length;
      }
      if (missing > 0 && missing < length) throw new Error('it is cut off');
      return Buffer.concat(parts);
    },
    async close() {
      await source.return?.();
    },
  };
  return reader;
}
