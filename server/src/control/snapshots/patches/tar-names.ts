import { byteReader } from '../../../lib/byte-reader.ts';
import { BLOCK, decodeHeader, decodeRecords, type Extended, paddingOf } from '../../../lib/tar-header.ts';

const MAX_EXTENDED_BYTES = 2 * 1024 * 1024;

/** The paths, each with a `/` before it, of the files and links in a tar stream of ours. */
export async function* tarNames(tar: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = byteReader(tar);
  try {
    let extended: Extended = {};
    for (;;) {
      const head = await reader.exactly(BLOCK);
      if (head.every((byte) => byte === 0)) return;
      const { letter, name, type, sizeBytes } = decodeHeader(head, extended);
      let left = sizeBytes + paddingOf(sizeBytes);
      if (letter === 'x') {
        if (sizeBytes > MAX_EXTENDED_BYTES) throw new Error('a header is too large');
        extended = decodeRecords((await reader.exactly(left)).subarray(0, sizeBytes));
        continue;
      }
      const path = extended['GNU.sparse.name'] ?? name;
      extended = {};
      if (type === 'file' || type === 'symlink' || type === 'hardlink') yield `/${path}`;
      while (left > 0) {
        const { length } = await reader.some(left);
        if (length === 0) throw new Error('it is cut off');
        left -= length;
      }
    }
  } finally {
    await reader.close();
  }
}
