import type { IncomingMessage, ServerResponse } from 'node:http';

const ALLOWED =
  'Authorization, Connect-Protocol-Version, Connect-Timeout-Ms, Content-Type, Content-Encoding, E2b-Sandbox-Id, E2b-Sandbox-Port, ' +
  'E2b-Traffic-Access-Token, Keepalive-Ping-Interval, Range, User-Agent, X-Access-Token';

/**
 * Pages of any origin may use a sandbox, because access needs a token that no browser sends by itself. True
 * if the request was a preflight and is answered. Applications in the sandbox answer for themselves.
 */
export function answerEnvdCors(request: IncomingMessage, response: ServerResponse): boolean {
  if (request.headers.origin === undefined) return false;
  response.setHeader('Access-Control-Allow-Origin', '*');
  response.setHeader(
    'Access-Control-Expose-Headers',
    'Content-Length, Content-Range, Content-Encoding, X-Request-Id',
  );
  if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined)
    return false;
  const asked = request.headers['access-control-request-headers'] ?? '';
  // Clients choose the names of metadata headers.
  const metadata = asked
    .split(',')
    .filter((name) => /^\s*x-metadata-[a-z0-9!#$%&'*+.^_`|~-]+\s*$/i.test(name));
  response.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST');
  response.setHeader('Access-Control-Allow-Headers', [ALLOWED, ...metadata].join(', '));
  response.setHeader('Access-Control-Max-Age', '600');
  response.writeHead(204).end();
  return true;
}
