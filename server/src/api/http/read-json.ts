import type { IncomingMessage } from 'node:http';
import { CayError } from '@cay/sdk/protocol';
import { bodyOf } from './request-body.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';
import { TooManyValues, parsePieces } from '../../lib/parse-json.ts';
import { nextSlice } from '../../lib/slices.ts';

/** A body that is not larger takes less than a millisecond to parse. Others are parsed in pieces. */
const SMALL_BYTES = 64 * 1024;
const MOST_VALUES = 100_000;

export interface BodyLimits {
  maxBytes: number;
  /** How long all of it may take to arrive. */
  timeoutMs: number;
  /** Called with the size of a large body before it is parsed; throws if that would be too much. */
  admit?(bytes: number): void;
  /** The project of the caller. Bodies of one project are parsed one after the other. */
  owner?: string | undefined;
}

/** The parsed body, or `undefined` if there is none. Rejects as `readBody` does, and if it is not JSON. */
export async function readJson(request: IncomingMessage, limits: BodyLimits): Promise<unknown> {
  const body = await readBody(request, limits);
  return body.length === 0 ? undefined : parseJson(body, "The request's body", { owner: limits.owner });
}

/**
 * The whole body. Rejects `invalid_argument` beyond `maxBytes`, before it reads all of it. Closes the
 * connection of a client that takes longer than `timeoutMs`, because the bytes received so far are held in
 * memory.
 */
export async function readBody(
  request: IncomingMessage,
  { maxBytes, timeoutMs, admit }: BodyLimits,
): Promise<Buffer> {
  const tooLarge = () =>
    new CayError('invalid_argument', `The request's body is larger than ${maxBytes} bytes`, {
      details: { limitBytes: maxBytes },
    });
  const announced = Number(request.headers['content-length'] ?? 0);
  if (announced > maxBytes) throw tooLarge();
  // Refuses before it reads: holding the body costs as much as parsing it.
  if (announced > SMALL_BYTES) admit?.(announced);
  const timer = setTimeout(
    () => request.destroy(new CayError('deadline_exceeded', 'The request took too long to arrive')),
    timeoutMs,
  );
  let body: Buffer | undefined;
  try {
    body =
      announced > SMALL_BYTES && admit
        ? await allOf(bodyOf(request), announced)
        : await collectBytes(bodyOf(request), maxBytes, announced);
  } finally {
    clearTimeout(timer);
  }
  if (!body) throw tooLarge();
  if (announced === 0 && body.length > SMALL_BYTES) admit?.(body.length);
  return body;
}

/**
 * A body of a known length. It was admitted, so the buffer is allocated at once and nothing is copied twice.
 */
async function allOf(body: AsyncIterable<Buffer>, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafeSlow(length);
  let at = 0;
  for await (const piece of body) at += piece.copy(bytes, at);
  return bytes.subarray(0, at);
}

/**
 * Parses JSON of a caller. A large text is parsed in pieces, with other requests in between. Rejects
 * `invalid_argument`, with `name` in the message.
 */
export async function parseJson(
  bytes: Buffer,
  name: string,
  { admit, owner = '' }: Pick<BodyLimits, 'admit' | 'owner'> = {},
): Promise<unknown> {
  if (bytes.length > SMALL_BYTES) admit?.(bytes.length);
  try {
    if (bytes.length <= SMALL_BYTES) return JSON.parse(bytes.toString());
    const parsing = parsePieces(bytes, MOST_VALUES);
    for (;;) {
      await nextSlice(owner);
      const { done, value } = parsing.next();
      if (!done) continue;
      // Checking all of it is one more piece.
      await nextSlice(owner);
      return value;
    }
  } catch (error) {
    throw new CayError(
      'invalid_argument',
      error instanceof TooManyValues
        ? `${name} has more than ${MOST_VALUES} values in it`
        : `${name} is not JSON`,
    );
  }
}
