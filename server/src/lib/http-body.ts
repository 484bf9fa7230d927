/** Bodies of HTTP responses from untrusted servers, with bounds. */
import type { IncomingMessage } from 'node:http';
import { collectBytes } from './bounded-bytes.ts';

export class BodyTooLong extends Error {
  override readonly name = 'BodyTooLong';
}

const MOST_DISCARDED = 64 * 1024;
const DISCARD_MS = 10_000;

/**
 * Reads a body that says nothing to us, so that its connection can be used again. One that is long or slow
 * ends its connection.
 */
export function discard(answer: IncomingMessage, withinMs = DISCARD_MS): void {
  let bytes = 0;
  const timer = setTimeout(() => answer.destroy(), withinMs).unref();
  answer
    .on('error', () => {})
    .once('close', () => clearTimeout(timer))
    .on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > MOST_DISCARDED) answer.destroy();
    });
}

export async function readWhole(answer: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const body = await collectBytes(answer as AsyncIterable<Buffer>, maxBytes);
  if (!body) throw new BodyTooLong(`it answers with more than ${maxBytes} bytes`);
  return body;
}

/** The lines, each a JSON value, until the body ends. Nothing is left open when the reader stops. */
export async function* jsonLines(answer: IncomingMessage, maxLineBytes: number): AsyncIterable<unknown> {
  let rest = '';
  try {
    answer.setEncoding('utf8');
    for await (const part of answer as AsyncIterable<string>) {
      rest += part;
      const whole = rest.split('\n');
      rest = whole.pop() ?? '';
      if (rest.length > maxLineBytes) throw new BodyTooLong('it sends a line without end');
      for (const line of whole) if (line.trim() !== '') yield JSON.parse(line);
    }
  } finally {
    answer.destroy();
  }
}
