import { TruncatedError, type ByteReader } from '../byte-reader.ts';
import { paddingOf } from './header.ts';

export interface EntryContent {
  /** `sizeBytes` long. Throws `TruncatedError` if the archive ends in it. */
  content: AsyncIterable<Uint8Array>;
  /** Passes over what was not read, and the padding. */
  skip(): Promise<void>;
}

export function entryContent(reader: ByteReader, sizeBytes: number): EntryContent {
  let left = sizeBytes;
  async function* content(): AsyncGenerator<Uint8Array, void, undefined> {
    while (left > 0) {
      const part = await reader.some(left);
      if (part.length === 0) throw new TruncatedError();
      left -= part.length;
      yield part;
    }
  }
  return {
    content: content(),
    async skip() {
      for await (const _ of content());
      await take(reader, paddingOf(sizeBytes));
    },
  };
}

/** Exactly so many bytes. Throws `TruncatedError` if there are fewer. */
export async function take(reader: ByteReader, length: number): Promise<Buffer> {
  const bytes = await reader.exactly(length);
  if (bytes.length < length) throw new TruncatedError();
  return bytes;
}
