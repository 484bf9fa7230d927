import type { Readable } from 'node:stream';
import { Denial } from '../carrier/denial.ts';

export const MAX_COLLECTED = 8 * 1024 * 1024;

/** A whole body, where a signature needs it. */
export async function collectBody(stream: Readable, spend: (chunk: Buffer) => number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    spend(chunk);
    size += chunk.length;
    if (size > MAX_COLLECTED)
      throw new Denial('secret', `A body that has to be signed has more than ${MAX_COLLECTED} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
