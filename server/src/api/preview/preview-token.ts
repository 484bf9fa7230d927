import type { IncomingMessage } from 'node:http';
import { TOKEN_QUERY } from '../../control/tenants/preview-tokens.ts';
import type { PreviewAddress } from './preview-address.ts';

export const TOKEN_HEADER = 'x-cay-preview-token';
const COOKIE = 'cay_preview';
/** A token is an HMAC in base64url. Nothing else may become part of a cookie. */
const SHAPE = /^[A-Za-z0-9_-]{43}$/;

export interface GivenToken {
  /** Undefined if the request has no token, or text that cannot be one. */
  token: string | undefined;
  /** The token was in the query, where histories would keep it and referrers would pass it on. */
  inQuery: boolean;
  /** Path and query without the token. */
  path: string;
}

/** The token of a request: in a header, in the query, or in the cookie that the query became. */
export function tokenOf(request: IncomingMessage, address: PreviewAddress): GivenToken {
  const { path, token: inQuery } = withoutToken(address.path);
  const header = request.headers[TOKEN_HEADER];
  if (typeof header === 'string') return { token: shaped(header), inQuery: false, path };
  if (inQuery !== undefined) return { token: shaped(inQuery), inQuery: true, path };
  const cookie = cookieOf(request, COOKIE);
  return { token: cookie === undefined ? undefined : shaped(cookie), inQuery: false, path };
}

export function cookieOf({ headers }: Pick<IncomingMessage, 'headers'>, name: string): string | undefined {
  const cookies = (headers.cookie ?? '').split(';').map((cookie) => cookie.trim());
  return cookies.find((candidate) => candidate.startsWith(`${name}=`))?.slice(name.length + 1);
}

function shaped(text: string): string | undefined {
  return SHAPE.test(text) ? text : undefined;
}

export function tokenCookie(token: string, address: PreviewAddress, secure: boolean): string {
  return `${COOKIE}=${token}; Path=${address.prefix}/; HttpOnly; SameSite=Lax; Max-Age=604800${secure ? '; Secure' : ''}`;
}

/** The visitor's cookies without ours. */
export function withoutOurCookies(cookies: string): string {
  return cookies
    .split(';')
    .filter((cookie) => !cookie.trim().toLowerCase().startsWith('cay_'))
    .join(';')
    .trim();
}

function withoutToken(path: string): { path: string; token: string | undefined } {
  const at = path.indexOf('?');
  if (at < 0 || !path.includes(`${TOKEN_QUERY}=`)) return { path, token: undefined };
  const given = path.slice(at + 1).split('&');
  const token = given.find((part) => part.startsWith(`${TOKEN_QUERY}=`))?.slice(TOKEN_QUERY.length + 1);
  const rest = given.filter((part) => !part.startsWith(`${TOKEN_QUERY}=`)).join('&');
  return { path: path.slice(0, at) + (rest === '' ? '' : `?${rest}`), token };
}
