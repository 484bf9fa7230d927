import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/**
 * Writes all of the source and ends the stream. Where both fail the failure of the source is the reason:
 * Node's `pipeline` rejects with an error around both then, which says nothing to whoever looks at its code.
 */
export async function feed(
  source: AsyncIterable<Uint8Array>,
  into: Writable,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  let failure: { error: unknown } | undefined;
  async function* watched() {
    try {
      yield* source;
    } catch (error) {
      failure = { error };
      throw error;
    }
  }
  try {
    await pipeline(watched(), into, options.signal ? { signal: options.signal } : {});
  } catch (error) {
    throw failure ? failure.error : error;
  }
}
