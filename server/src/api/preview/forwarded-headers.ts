import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { secretOf } from '../authenticate.ts';
import type { PreviewAddress } from './preview-address.ts';
import { TOKEN_HEADER, TOKEN_QUERY, withoutOurCookies } from './preview-token.ts';

/** They are between two neighbours and not for whoever comes after. */
const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];
const OUR_KEY = /e2b_[0-9a-f]{40}/;

/** What the application inside sees of a visitor's headers: never a key of ours, a token or our cookies. */
export function toApplication(
  request: IncomingMessage,
  address: PreviewAddress,
  options: { upgrade: boolean },
): Record<string, string | string[]> {
  const headers = withoutHops(request.headers);
  delete headers[TOKEN_HEADER];
  const secret = secretOf(request);
  for (const name of ['authorization', 'x-api-key', 'sec-websocket-protocol']) {
    const value = headers[name];
    if (typeof value === 'string' && (OUR_KEY.test(value) || (secret !== undefined && OUR_KEY.test(secret) && value.includes(secret))))
      delete headers[name];
  }
  if (typeof headers.cookie === 'string') {
    const cookies = withoutOurCookies(headers.cookie);
    if (cookies === '') delete headers.cookie;
    else headers.cookie = cookies;
  }
  if (typeof headers.referer === 'string' && headers.referer.includes(`${TOKEN_QUERY}=`)) delete headers.referer;
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

/** What a visitor sees of the application's headers. It shares no cookies with its neighbours. */
export function toVisitor(given: IncomingHttpHeaders, address: PreviewAddress): Record<string, string | string[]> {
  const headers = withoutHops(given);
  const cookies = given['set-cookie'];
  if (cookies) headers['set-cookie'] = cookies.filter((cookie) => !/^\s*cay_/i.test(cookie)).map((cookie) => confined(cookie, address));
  if (address.prefix !== '') {
    // By path an application shares its origin with the API and with others; this gives it one that is nobody's.
    headers['content-security-policy'] = 'sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads';
    if (typeof headers.location === 'string' && /^\/(?!\/)/.test(headers.location)) headers.location = address.prefix + headers.location;
  }
  return headers;
}

export function isEncrypted(request: IncomingMessage): boolean {
  return (request.socket as TLSSocket).encrypted === true;
}

function confined(cookie: string, address: PreviewAddress): string {
  const parts = cookie.split(';').filter((part) => !/^\s*domain\s*=/i.test(part));
  if (address.prefix === '') return parts.join(';');
  return [...parts.filter((part) => !/^\s*path\s*=/i.test(part)), ` Path=${address.prefix}/`].join(';');
}

function withoutHops(given: IncomingHttpHeaders): Record<string, string | string[]> {
  const named = (given.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  const headers: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined && !HOP_BY_HOP.includes(name) && !named.includes(name)) headers[name] = value;
  }
  return headers;
}
