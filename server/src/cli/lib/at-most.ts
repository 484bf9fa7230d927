import { CayError } from '@cay/sdk/client';

/** Passes on what a sandbox sends, until that is more than somebody is ready to take. */
export async function* atMost(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      throw new CayError('resource_exhausted', `The sandbox sends more than ${maxBytes} bytes`, {
        hint: 'If that is what you want, allow more with --limit',
      });
    }
    yield chunk;
  }
}
