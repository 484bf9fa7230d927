import { Readable, Transform } from 'node:stream';
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { damaged } from './envelope.ts';
import type { Manifest } from './manifest.ts';

export type Compression = Manifest['compression'];

/** Level 1: faster than a fast disk. */
const FAST = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

export function compress(
  content: AsyncIterable<Uint8Array>,
  compression: Compression,
): AsyncIterable<Uint8Array> {
  return compression === 'none' ? content : through(content, createZstdCompress(FAST));
}

/** Rejects `invalid_argument` for input that `compress` did not write. */
export async function* decompress(
  content: AsyncIterable<Uint8Array>,
  compression: Compression,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (compression === 'none') return yield* content;
  try {
    yield* through(content, createZstdDecompress());
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code?.startsWith('ZSTD_') || code === 'Z_BUF_ERROR')
      throw damaged('it cannot be decompressed', error);
    throw error;
  }
}

async function* through(
  content: AsyncIterable<Uint8Array>,
  transform: Transform,
): AsyncGenerator<Uint8Array, void, undefined> {
  const source = Readable.from(content, { objectMode: false });
  source.on('error', (error) => transform.destroy(error));
  source.pipe(transform);
  try {
    yield* transform as AsyncIterable<Buffer>;
  } finally {
    source.destroy();
    transform.destroy();
  }
}
