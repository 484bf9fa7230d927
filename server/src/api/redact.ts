/** A request's address as it may stand in a log: tokens in the query and keys anywhere are blanked. */
export function safePath(url: string | undefined): string {
  return (url ?? '')
    .slice(0, 2000)
    .replaceAll(/([?&](?:cay_token|token|key|api_key)=)[^&]*/gi, '$1***')
    .replaceAll(/e2b_[0-9a-f]{40}/g, 'e2b_***');
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
