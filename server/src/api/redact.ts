/** A request's address as it may stand in a log: tokens in the query and keys anywhere are blanked. */
export function safePath(url: string | undefined): string {
  return (url ?? '')
    .slice(0, 2000)
    .replaceAll(/([?&](?:cay_token|token|key|api_key)=)[^&]*/gi, '$1***')
    .replaceAll(KEYS, '$1***');
}

/** Keys and secrets that this server gave out, wherever they stand. */
const KEYS = /(e2b_|whsec_)[A-Za-z0-9_-]{40,}/g;

/** Text from a caller as it may stand in an event. */
export function withoutSecrets(text: string): string {
  return text.replaceAll(KEYS, '$1***').replaceAll(/((?:cay_token|x-cay-preview-token)[=:]\s*)[^\s&"']+/gi, '$1***');
}

/** For pino: where keys and tokens could stand in what is logged. */
export const REDACTED = [
  'authorization',
  '*.authorization',
  '*["x-api-key"]',
  '*["x-cay-preview-token"]',
  '*.cookie',
  'headers.authorization',
  'headers.cookie',
  'headers["x-api-key"]',
  'headers["x-cay-preview-token"]',
  'headers["sec-websocket-protocol"]',
  'secret',
  '*.secret',
  'token',
  '*.token',
];
