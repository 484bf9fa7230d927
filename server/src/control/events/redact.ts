/** The form of access tokens of sandboxes. */
export const ACCESS_TOKEN = /[a-z0-9]{20}_[0-9a-f]{64}/;

/** Query parameters that give access to something. */
const SECRET_PARAMETERS = new Set(['cay_token', 'token', 'key', 'api_key', 'signature', 'access_token']);

/** A URL as it may appear in a log: tokens and signatures in the query, and keys anywhere, are blanked. */
export function safePath(url: string | undefined): string {
  const cut = (url ?? '').slice(0, 2000);
  const at = cut.indexOf('?');
  if (at < 0) return withoutTokens(cut);
  const query = cut
    .slice(at + 1)
    .split('&')
    .map((part) => (SECRET_PARAMETERS.has(nameOf(part)) ? `${part.split('=', 1)[0]}=***` : part));
  return withoutTokens(`${cut.slice(0, at)}?${query.join('&')}`);
}

/** A percent-encoded name means the same. */
function nameOf(part: string): string {
  const name = part.split('=', 1)[0]!;
  try {
    return decodeURIComponent(name).toLowerCase();
  } catch {
    return name.toLowerCase();
  }
}

function withoutTokens(text: string): string {
  return text.replaceAll(KEYS, '$1***').replaceAll(TOKENS, '***');
}

/** Keys and secrets of this server. */
const KEYS = /(e2b_|whsec_)[A-Za-z0-9_-]{40,}/g;

/** Access and traffic tokens of sandboxes. */
const TOKENS = new RegExp(ACCESS_TOKEN, 'g');

/** Text from a caller as it may appear in an event. */
export function withoutSecrets(text: string): string {
  return withoutTokens(text).replaceAll(/((?:cay_token|x-cay-preview-token)[=:]\s*)[^\s&"']+/gi, '$1***');
}

/** For pino: the paths of fields that may hold keys and tokens. */
export const REDACTED = [
  'authorization',
  '*.authorization',
  '*["x-api-key"]',
  '*["x-cay-preview-token"]',
  '*["x-access-token"]',
  '*["e2b-traffic-access-token"]',
  '*.cookie',
  'headers.authorization',
  'headers.cookie',
  'headers["x-api-key"]',
  'headers["x-cay-preview-token"]',
  'headers["x-access-token"]',
  'headers["e2b-traffic-access-token"]',
  'headers["sec-websocket-protocol"]',
  'secret',
  '*.secret',
  'token',
  '*.token',
  'openUrl',
  '*.openUrl',
];
