import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { errorAnswer } from './error-answer.ts';

/** How long a refused client has to read the answer. */
const LINGER_MS = 5_000;

/**
 * Answers an upgrade with an error, in the API's shape unless another is given, and closes the connection.
 * Returns the status.
 */
export function refuseUpgrade(
  socket: Duplex,
  error: unknown,
  as: { status?: number; body?: unknown } = {},
): number {
  const answer = errorAnswer(error);
  const { status = answer.status, body = answer.body } = as;
  if (socket.destroyed) return status;
  const text = JSON.stringify(body);
  const lines = Object.entries({
    ...answer.headers,
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(text)),
    Connection: 'close',
  });
  // A client that does not read is disconnected. Errors of the connection are ignored: it is over.
  const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref();
  socket.on('error', () => socket.destroy()).once('close', () => clearTimeout(timer));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Failed'}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${text}`,
  );
  return status;
}
