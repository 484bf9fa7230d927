import { CayError } from '@cay/sdk/client';
import { formatBytes } from './units.ts';

/** Passes on what a sandbox sends, and rejects beyond a bound. */
export async function* atMost(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      throw new CayError('resource_exhausted', `The sandbox sends more than ${formatBytes(maxBytes)}`, {
        hint: 'allow more with --limit, if you trust it',
      });
    }
    yield chunk;
  }
}
