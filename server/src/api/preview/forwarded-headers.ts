import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { ACCESS_TOKEN } from '../../control/events/redact.ts';
import type { PreviewAddress } from './preview-address.ts';
import { TOKEN_QUERY } from '../../control/tenants/preview-tokens.ts';
import { TOKEN_HEADER, withoutOurCookies } from './preview-token.ts';

/** They are between two neighbours and not for whoever comes after. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/**
 * They frame or route a message. `Connection` may name them, and they stay all the same: else a body would
 * become a request.
 */
const NEVER_HOPS = new Set(['host', 'content-length', 'content-encoding', 'content-type', 'content-range']);
/** Tokens that only this server reads. The application has no use for them, whatever their value is. */
const OUR_HEADERS = [TOKEN_HEADER, 'e2b-traffic-access-token', 'expect'];
const OUR_SECRETS = new RegExp(`e2b_[0-9a-f]{40}|${ACCESS_TOKEN.source}`);
/**
 * What a browser keeps for the whole origin. By path that is the API's own, and `Clear-Site-Data` reaches
 * further than one host in any case.
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

/** What the application inside sees of a visitor's headers: never a key of ours, a token or our cookies. */
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
    // A body of unknown length stays one.
    if (request.headers['transfer-encoding'] !== undefined) headers['transfer-encoding'] = 'chunked';
  }
  // Names have no case, but programs exist that look for this one as browsers of old wrote it.
  const { host = '', ...others } = headers;
  return { Host: host, ...others };
}

/**
 * A secret of ours, also as the name or the password of `Basic`, and beside other values of the same header.
 */
function hasSecret(value: string | string[]): boolean {
  const text = String(value);
  if (OUR_SECRETS.test(text)) return true;
  const basic = /\bBasic +([A-Za-z0-9+/_=-]+)/i.exec(text)?.[1];
  return basic !== undefined && OUR_SECRETS.test(Buffer.from(basic, 'base64').toString('latin1'));
}

/** What a visitor sees of the application's headers. It shares no cookies with its neighbours. */
export function toVisitor(
  given: IncomingHttpHeaders,
  address: PreviewAddress,
): Record<string, string | string[]> {
  const headers = withoutHops(given);
  delete headers['clear-site-data'];
  const cookies = given['set-cookie'];
  // One without a name is sent back as if what follows "=" were its name.
  if (cookies)
    headers['set-cookie'] = cookies
      .filter((cookie) => !/^[\s=]*cay_/i.test(cookie))
      .map((cookie) => confined(cookie, address));
  if (address.prefix !== '') {
    for (const name of OF_THE_ORIGIN) delete headers[name];
    // By path an application shares its origin with the API and with others; this gives it one that is
    // nobody's.
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
