import type { IncomingMessage } from 'node:http';
import { CayError } from '@cay/sdk/protocol';

export interface BodyLimits {
  maxBytes: number;
  /** How long all of it may take to arrive. */
  timeoutMs: number;
}

/**
 * The parsed body, or `undefined` if there is none. Rejects `invalid_argument` beyond `maxBytes`, before reading it
 * all, and hangs up on those who take longer than `timeoutMs`: what they have sent so far is held for them.
 */
export async function readJson(request: IncomingMessage, { maxBytes, timeoutMs }: BodyLimits): Promise<unknown> {
  const tooLarge = () =>
    new CayError('invalid_argument', `The request's body is larger than ${maxBytes} bytes`, { details: { limitBytes: maxBytes } });
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  const chunks: Buffer[] = [];
  let length = 0;
  const timer = setTimeout(() => request.destroy(new CayError('deadline_exceeded', 'The request took too long to arrive')), timeoutMs);
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > maxBytes) throw tooLarge();
      chunks.push(chunk);
    }
  } finally {
    clearTimeout(timer);
  }
  if (length === 0) return undefined;
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw new CayError('invalid_argument', "The request's body is not JSON");
  }
}
