import type { IncomingMessage, ServerResponse } from 'node:http';

/** Lets pages of the given origins call the API. True if the request was a preflight and is answered. */
export function answerCors(
  request: IncomingMessage,
  response: ServerResponse,
  origins: readonly string[],
): boolean {
  const { origin } = request.headers;
  const allowed = origin !== undefined && (origins.includes(origin) || origins.includes('*'));
  if (origins.length > 0) response.setHeader('Vary', 'Origin');
  if (allowed) {
    response.setHeader('Access-Control-Allow-Origin', origin);
    response.setHeader(
      'Access-Control-Expose-Headers',
      'X-Request-Id, Retry-After, Content-Range, Content-Length',
    );
  }
  if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined)
    return false;
  if (allowed) {
    response.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
    response.setHeader(
      'Access-Control-Allow-Headers',
      'Authorization, X-API-Key, Content-Type, Idempotency-Key, Last-Event-ID, Range, X-Request-Id',
    );
    response.setHeader('Access-Control-Max-Age', '600');
  }
  response.writeHead(204).end();
  return true;
}
