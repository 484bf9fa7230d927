import type { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';

/** What is left of a body that is not read: more than that and the connection is given up rather than read to its end. */
const WORTH_READING = 64 * 1024;

/** Answers at once and in a single write. A `Response` with a stream in it costs half a millisecond more. */
export function sendJson(response: ServerResponse, value: unknown, status = 200, headers: Record<string, string> = {}): Response {
  const body = JSON.stringify(value);
  if (!response.headersSent) {
    const close = status >= 400 && isLongUnread(response.req) ? { Connection: 'close' } : {};
    const own = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
    response.writeHead(status, { ...headers, ...close, ...own }).end(body);
  }
  return RESPONSE_ALREADY_SENT;
}

/** A request that was refused while its body is still being sent must not hold up the next one on its connection. */
function isLongUnread(request: IncomingMessage | undefined): boolean {
  if (!request || request.complete) return false;
  const length = request.headers['content-length'];
  return length === undefined ? request.headers['transfer-encoding'] !== undefined : Number(length) > WORTH_READING;
}
