import type { IncomingMessage } from 'node:http';
import { CayError } from '@cay/sdk/protocol';
import { bodyOf } from './request-body.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';
import { jsonValues } from '../../lib/json-values.ts';

/** A body that is not larger cannot have so many values that parsing it takes long. */
const SMALL_BYTES = 64 * 1024;
const MOST_VALUES = 100_000;

export interface BodyLimits {
  maxBytes: number;
  /** How long all of it may take to arrive. */
  timeoutMs: number;
  /** Called with the size of a large body before it is parsed; throws if that would be too much. */
  admit?(bytes: number): void;
}

/**
 * The parsed body, or `undefined` if there is none. Rejects `invalid_argument` beyond `maxBytes`, before
 * reading it all, and hangs up on those who take longer than `timeoutMs`: what they have sent so far is held
 * for them.
 */
export async function readJson(
  request: IncomingMessage,
  { maxBytes, timeoutMs, admit }: BodyLimits,
): Promise<unknown> {
  const tooLarge = () =>
    new CayError('invalid_argument', `The request's body is larger than ${maxBytes} bytes`, {
      details: { limitBytes: maxBytes },
    });
  const announced = Number(request.headers['content-length'] ?? 0);
  if (announced > maxBytes) throw tooLarge();
  // Refused before it is read: what is held meanwhile costs as much as parsing it.
  if (announced > SMALL_BYTES) admit?.(announced);
  const timer = setTimeout(
    () => request.destroy(new CayError('deadline_exceeded', 'The request took too long to arrive')),
    timeoutMs,
  );
  let body: Buffer | undefined;
  try {
    body = await collectBytes(bodyOf(request), maxBytes, announced);
  } finally {
    clearTimeout(timer);
  }
  if (!body) throw tooLarge();
  if (body.length === 0) return undefined;
  return parseJson(body, "The request's body", announced > 0 ? undefined : admit);
}

/** Parses what a caller sent, if that cannot take long. Rejects `invalid_argument`, naming it. */
export function parseJson(bytes: Buffer, name: string, admit?: BodyLimits['admit']): unknown {
  if (bytes.length > SMALL_BYTES) {
    admit?.(bytes.length);
    if (jsonValues(bytes, MOST_VALUES) > MOST_VALUES) {
      throw new CayError('invalid_argument', `${name} has more than ${MOST_VALUES} values in it`);
    }
  }
  try {
    return JSON.parse(bytes.toString());
  } catch {
    throw new CayError('invalid_argument', `${name} is not JSON`);
  }
}
