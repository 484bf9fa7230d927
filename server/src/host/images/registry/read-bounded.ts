import { CayError } from '@cay/sdk/protocol';
import type { IncomingMessage } from 'node:http';

/** The whole body of an answer. Rejects `invalid_argument` beyond the bound. */
export async function readBounded(answer: IncomingMessage, most: number, what: string): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of answer as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > most)
        throw new CayError('invalid_argument', `Cannot use ${what}: it is larger than ${most} bytes`);
      parts.push(part);
    }
  } catch (error) {
    if (error instanceof CayError) throw error;
    throw new CayError('unavailable', `Cannot read ${what}: the connection broke`, { cause: error });
  } finally {
    answer.destroy();
  }
  return Buffer.concat(parts);
}
