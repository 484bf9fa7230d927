import { Readable, type Transform } from 'node:stream';

/**
 * The content after the transform. Ends both when the reader stops, and rejects with the failure of either.
 */
export async function* throughTransform(
  content: AsyncIterable<Uint8Array>,
  transform: Transform,
  options: { highWaterMark?: number } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const source = Readable.from(content, { objectMode: false, ...options });
  source.on('error', (error) => transform.destroy(error));
  source.pipe(transform);
  try {
    yield* transform as AsyncIterable<Buffer>;
  } finally {
    source.destroy();
    transform.destroy();
  }
}
