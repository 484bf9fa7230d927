import type { IncomingMessage } from 'node:http';
import { CayError } from '@cay/sdk/protocol';

/** The parsed body, or `undefined` if there is none. Rejects `invalid_argument` beyond `maxBytes`, before reading it all. */
export async function readJson(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const tooLarge = () =>
    new CayError('invalid_argument', `The request's body is larger than ${maxBytes} bytes`, { details: { limitBytes: maxBytes } });
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxBytes) throw tooLarge();
    chunks.push(chunk);
  }
  if (length === 0) return undefined;
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw new CayError('invalid_argument', "The request's body is not JSON");
  }
}
