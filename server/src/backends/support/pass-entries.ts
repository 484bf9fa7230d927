import { byteReader } from '../../lib/byte-reader.ts';
import { contentPadding, rawEntries, type RawEntry } from '../../lib/tar/raw-entries.ts';

/** The entries of a tar archive for which there is a head, without the end mark. */
export async function* passEntries(
  stream: AsyncIterable<Uint8Array>,
  headOf: (entry: RawEntry) => Buffer | undefined,
): AsyncIterable<Uint8Array> {
  const reader = byteReader(stream);
  try {
    for await (const entry of rawEntries(reader)) {
      const head = headOf(entry);
      if (!head) continue;
      yield head;
      yield* entry.content;
      if (entry.sizeBytes % 512 !== 0) yield contentPadding(entry);
    }
  } finally {
    await reader.close();
  }
}
