import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { errorAnswer } from './error-answer.ts';

/** Answers an upgrade with a failure in the API's own shape, and hangs up. Returns the status. */
export function refuseUpgrade(socket: Duplex, error: unknown): number {
  const { status, headers, body } = errorAnswer(error);
  if (socket.destroyed) return status;
  const text = JSON.stringify(body);
  const lines = Object.entries({
    ...headers,
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(text)),
    Connection: 'close',
  });
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Failed'}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${text}`,
  );
  return status;
}
