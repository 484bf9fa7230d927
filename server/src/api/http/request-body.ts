import type { IncomingMessage } from 'node:http';

/**
 * The body of a request, as it comes. Whoever stops reading it leaves the connection open, so that the answer
 * which says why can still be sent; iterating over the request itself would end the connection.
 */
export function bodyOf(request: IncomingMessage): AsyncIterable<Buffer> {
  return request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
}
