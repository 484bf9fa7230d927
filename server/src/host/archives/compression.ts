import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { throughTransform } from '../../lib/through-transform.ts';
import { damaged } from './envelope.ts';
import type { Manifest } from './manifest.ts';

export type Compression = Manifest['compression'];

/** Level 1: faster than a fast disk. */
const FAST = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

export function compress(
  content: AsyncIterable<Uint8Array>,
  compression: Compression,
): AsyncIterable<Uint8Array> {
  return compression === 'none' ? content : throughTransform(content, createZstdCompress(FAST));
}

/** Rejects `invalid_argument` for input that `compress` did not write. */
export async function* decompress(
  content: AsyncIterable<Uint8Array>,
  compression: Compression,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (compression === 'none') return yield* content;
  try {
    yield* throughTransform(content, createZstdDecompress());
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code?.startsWith('ZSTD_') || code === 'Z_BUF_ERROR')
      throw damaged('it cannot be decompressed', error);
    throw error;
  }
}
