/**
 * The archive in a layer: decompressed by the format that it has, counted, and checked against its digest at
 * its end.
 */
import { createHash } from 'node:crypto';
import type { Transform } from 'node:stream';
import { constants, createGunzip, createZstdDecompress } from 'node:zlib';
import { CayError } from '@cay/sdk/protocol';
import { throughTransform } from '../../lib/through-transform.ts';

export interface LayerStreamOptions {
  /** The digest of the archive. Absent: it is not known. */
  diffId?: string;
  /** The most that the archive may have. */
  mostBytes: number;
  onEnd?(sizeBytes: number, diffId: string): void;
}

const CHUNK = 256 * 1024;
/** The largest window that zstd's own program asks for; it is memory for each layer that is unpacked. */
const WINDOW_LOG = 27;

/**
 * Rejects `invalid_argument` for what cannot be decompressed or is not what the digest says, and
 * `resource_exhausted` beyond the bound. The reader must not use what came before a rejection.
 */
export async function* layerStream(
  source: AsyncIterable<Uint8Array>,
  options: LayerStreamOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const piece of decompressed(source)) {
    bytes += piece.length;
    if (bytes > options.mostBytes) {
      throw new CayError(
        'resource_exhausted',
        `The image is larger than ${options.mostBytes} bytes when it is unpacked`,
        { hint: '--max-image-size of "cay up" sets how large one may be' },
      );
    }
    hash.update(piece);
    yield piece;
  }
  const diffId = `sha256:${hash.digest('hex')}`;
  if (options.diffId !== undefined && diffId !== options.diffId) {
    throw new CayError('invalid_argument', `A layer has ${diffId} in it, not ${options.diffId}`, {
      details: { digest: diffId },
    });
  }
  options.onEnd?.(bytes, diffId);
}

/** Decides by the first bytes: the media type of a layer is only a claim. */
export async function* decompressed(
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const iterator = source[Symbol.asyncIterator]();
  let head = Buffer.alloc(0);
  while (head.length < 4) {
    const next = await iterator.next();
    if (next.done) break;
    head = Buffer.concat([head, next.value]);
  }
  async function* whole() {
    try {
      yield head;
      for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
    }
  }
  const transform = transformFor(head);
  if (!transform) return yield* whole();
  try {
    yield* throughTransform(whole(), transform, { highWaterMark: CHUNK });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (!code?.startsWith('Z_') && !code?.startsWith('ZSTD_')) throw error;
    throw new CayError('invalid_argument', 'A layer is damaged: it cannot be decompressed', { cause: error });
  }
}

function transformFor(head: Buffer): Transform | undefined {
  if (head[0] === 0x1f && head[1] === 0x8b) return createGunzip({ chunkSize: CHUNK });
  if (head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528)
    return createZstdDecompress({
      chunkSize: CHUNK,
      params: { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG },
    });
  return undefined;
}
