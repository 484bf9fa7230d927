import { byteReader } from '../../../lib/byte-reader.ts';
import { readTar } from '../../../lib/tar/read.ts';

const MAX_EXTENDED_BYTES = 2 * 1024 * 1024;

/** The absolute paths of the files and links in a tar stream of a guest. */
export async function* tarNames(tar: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = byteReader(tar);
  try {
    for await (const { name, type, extended } of readTar(reader, { maxExtendedBytes: MAX_EXTENDED_BYTES })) {
      const path = extended['GNU.sparse.name'] ?? name;
      if (type === 'file' || type === 'symlink' || type === 'hardlink') yield `/${path}`;
    }
  } finally {
    await reader.close();
  }
}
