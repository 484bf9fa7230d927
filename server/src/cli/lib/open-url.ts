import type { ExposedPort } from '@cay/sdk/client';

/** The address that opens the preview when it is clicked: with the token in it, where one is needed. */
export function openUrl(exposed: ExposedPort & { openUrl?: string }): string {
  if (exposed.openUrl !== undefined) return exposed.openUrl;
  if (exposed.token === undefined || exposed.visibility === 'public') return exposed.url;
  const url = new URL(exposed.url);
  url.searchParams.set('cay_token', exposed.token);
  return url.href;
}
