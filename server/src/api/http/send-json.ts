import type { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Settled } from './settled.ts';

/** An unread body up to this size is read to its end, to keep the connection usable. */
const WORTH_READING = 64 * 1024;
/**
 * How long a connection stays open after its body was refused, and how many bytes of the body are read
 * meanwhile.
 */
const LINGER_MS = 1000;
const LINGER_BYTES = 4 * 1024 * 1024;

/** Answers at once and in a single write. A `Response` with a stream in it costs half a millisecond more. */
export function sendJson<T>(
  response: ServerResponse,
  value: T & Settled<T>,
  status = 200,
  headers: Record<string, string> = {},
): Response {
  const body = JSON.stringify(value);
  if (!response.headersSent) {
    const refused = status >= 400 && isLongUnread(response.req) ? response.req : undefined;
    const own = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
    response.writeHead(status, { ...headers, ...(refused && { Connection: 'close' }), ...own });
    // Of a client that sends too many requests nothing more is read.
    if (refused) closeAfter(response, body, refused, status === 429 ? 0 : LINGER_BYTES);
    else response.end(body);
  }
  return RESPONSE_ALREADY_SENT;
}

/**
 * Whether a refused request is still sending its body, which must not hold up the next request on its
 * connection.
 */
function isLongUnread(request: IncomingMessage | undefined): boolean {
  if (!request || request.complete) return false;
  const length = request.headers['content-length'];
  return length === undefined
    ? request.headers['transfer-encoding'] !== undefined
    : Number(length) > WORTH_READING;
}

/**
 * Sends the answer and closes the connection when the client has sent all, has disconnected, or has had time
 * to read the answer. Closing at once would reset the connection, and the client would lose the answer.
 */
function closeAfter(
  response: ServerResponse,
  body: string,
  request: IncomingMessage,
  takeBytes: number,
): void {
  let left = takeBytes;
  const end = () => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(end, LINGER_MS);
  response.once('close', () => clearTimeout(timer)).write(body);
  request.removeAllListeners('readable').pause();
  if (left === 0) return;
  request
    .on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) request.pause();
    })
    .once('end', end)
    .resume();
}
