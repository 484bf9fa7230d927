import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { CayError } from '@cay/sdk/protocol';

/** What a client sent, which may be compressed by gzip. */
export async function* decompressed(
  archive: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const iterator = archive[Symbol.asyncIterator]();
  const first = await iterator.next();
  const whole = (async function* () {
    if (!first.done) yield first.value;
    yield* { [Symbol.asyncIterator]: () => iterator };
  })();
  if (first.done || first.value[0] !== 0x1f || first.value[1] !== 0x8b) return yield* whole;
  const source = Readable.from(whole, { objectMode: false });
  const gunzip = createGunzip();
  source.on('error', (error) => gunzip.destroy(error));
  try {
    yield* source.pipe(gunzip) as AsyncIterable<Uint8Array>;
  } catch (error) {
    if (!(error as NodeJS.ErrnoException).code?.startsWith('Z_')) throw error;
    throw new CayError('invalid_argument', 'The uploaded files cannot be decompressed', { cause: error });
  }
}
