import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { ACCESS_TOKEN } from '../../control/events/redact.ts';
import { HOP_BY_HOP } from '../../lib/hop-by-hop.ts';
import type { PreviewAddress } from './preview-address.ts';
import { TOKEN_QUERY } from '../../control/tenants/preview-tokens.ts';
import { TOKEN_HEADER, withoutOurCookies } from './preview-token.ts';

/**
 * Headers that frame or route a message. They are forwarded even if `Connection` names them: without them a
 * body could be read as a request.
 */
const NEVER_HOPS = new Set(['host', 'content-length', 'content-encoding', 'content-type', 'content-range']);
/** Headers that only this server reads. The application never gets them. */
const OUR_HEADERS = [TOKEN_HEADER, 'e2b-traffic-access-token', 'expect'];
const OUR_SECRETS = new RegExp(`e2b_[0-9a-f]{40}|${ACCESS_TOKEN.source}`);
/**
 * Response headers that apply to a whole origin. For a preview by path that is the origin of the API, and
 * `Clear-Site-Data` reaches beyond one host in any case.
 */
const OF_THE_ORIGIN = [
  'accept-ch',
  'alt-svc',
  'critical-ch',
  'expect-ct',
  'nel',
  'origin-agent-cluster',
  'public-key-pins',
  'public-key-pins-report-only',
  'report-to',
  'reporting-endpoints',
  'service-worker-allowed',
  'set-login',
  'strict-transport-security',
];

/** A visitor's headers as the application gets them: without our keys, tokens and cookies. */
export function toApplication(
  request: IncomingMessage,
  address: PreviewAddress,
  options: { upgrade: boolean },
): Record<string, string | string[]> {
  const headers = withoutHops(request.headers);
  for (const name of OUR_HEADERS) delete headers[name];
  for (const [name, value] of Object.entries(headers)) if (hasSecret(value)) delete headers[name];
  if (typeof headers.cookie === 'string') {
    const cookies = withoutOurCookies(headers.cookie);
    if (cookies === '') delete headers.cookie;
    else headers.cookie = cookies;
  }
  if (typeof headers.referer === 'string' && headers.referer.includes(`${TOKEN_QUERY}=`))
    delete headers.referer;
  const { remoteAddress } = request.socket;
  const before = request.headers['x-forwarded-for'];
  headers['x-forwarded-for'] = [before, remoteAddress].flat().filter(Boolean).join(', ');
  headers['x-forwarded-host'] = request.headers.host ?? '';
  headers['x-forwarded-proto'] = isEncrypted(request) ? 'https' : 'http';
  if (address.prefix !== '') headers['x-forwarded-prefix'] = address.prefix;
  if (options.upgrade) {
    headers.connection = 'Upgrade';
    headers.upgrade = request.headers.upgrade ?? 'websocket';
  } else {
    headers.connection = 'close';
    // Keeps a body without a length chunked.
    if (request.headers['transfer-encoding'] !== undefined) headers['transfer-encoding'] = 'chunked';
  }
  // Header names have no case, but some programs only find this one in the spelling that browsers use.
  const { host = '', ...others } = headers;
  return { Host: host, ...others };
}

/**
 * Whether a value has one of our secrets in it, also as the name or password of `Basic`, and beside other
 * values.
 */
function hasSecret(value: string | string[]): boolean {
  const text = String(value);
  if (OUR_SECRETS.test(text)) return true;
  const basic = /\bBasic +([A-Za-z0-9+/_=-]+)/i.exec(text)?.[1];
  return basic !== undefined && OUR_SECRETS.test(Buffer.from(basic, 'base64').toString('latin1'));
}

/** The application's headers as a visitor gets them. Cookies are confined to the preview. */
export function toVisitor(
  given: IncomingHttpHeaders,
  address: PreviewAddress,
): Record<string, string | string[]> {
  const headers = withoutHops(given);
  delete headers['clear-site-data'];
  const cookies = given['set-cookie'];
  // A browser returns a cookie without a name as if its value were a name.
  if (cookies)
    headers['set-cookie'] = cookies
      .filter((cookie) => !/^[\s=]*cay_/i.test(cookie))
      .map((cookie) => confined(cookie, address));
  if (address.prefix !== '') {
    for (const name of OF_THE_ORIGIN) delete headers[name];
    // A preview by path shares its origin with the API, so it is sandboxed into an opaque origin.
    headers['content-security-policy'] =
      'sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads';
    if (typeof headers.location === 'string' && /^\/(?!\/)/.test(headers.location))
      headers.location = address.prefix + headers.location;
  }
  return headers;
}

export function isEncrypted(request: IncomingMessage): boolean {
  return (request.socket as TLSSocket).encrypted === true;
}

function confined(cookie: string, address: PreviewAddress): string {
  const parts = cookie.split(';').filter((part) => !/^\s*domain\s*(?:=|$)/i.test(part));
  if (address.prefix === '') return parts.join(';');
  return [...parts.filter((part) => !/^\s*path\s*(?:=|$)/i.test(part)), ` Path=${address.prefix}/`].join(';');
}

function withoutHops(given: IncomingHttpHeaders): Record<string, string | string[]> {
  const named = (given.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  const headers: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(given)) {
    const isHop = HOP_BY_HOP.has(name) || (named.includes(name) && !NEVER_HOPS.has(name));
    if (value !== undefined && !isHop) headers[name] = value;
  }
  return headers;
}
