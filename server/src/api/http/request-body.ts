import type { IncomingMessage } from 'node:http';

/**
 * The body of a request, as a stream. A reader that stops early leaves the connection open, so that the
 * answer can still be sent; iterating over the request itself would close the connection.
 */
export function bodyOf(request: IncomingMessage): AsyncIterable<Buffer> {
  return request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
}
