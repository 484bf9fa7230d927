/**
 * Tokens that give access to private ports, one for each sandbox and port. A token is derived from a secret
 * of this installation, so none is stored, and it reveals nothing about API keys.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { SandboxId } from '@cay/sdk/protocol';
import { inEpoch } from './token-epochs.ts';

/** The parameter of a preview's address that takes its token. */
export const TOKEN_QUERY = 'cay_token';

/** An address with the token in its query. It is a secret: keep it out of logs and events. */
export function withToken(url: string, token: string): string {
  const address = new URL(url);
  address.searchParams.set(TOKEN_QUERY, token);
  return address.href;
}

/** `epoch` is how often the tokens of the sandbox's project were revoked. */
export interface PreviewTokens {
  token(id: SandboxId, port: number, epoch: number): string;
  matches(id: SandboxId, port: number, epoch: number, token: string): boolean;
}

export function previewTokens(secret: Uint8Array): PreviewTokens {
  const token = (id: SandboxId, port: number, epoch: number) =>
    createHmac('sha256', secret)
      .update(inEpoch(`${id}:${port}`, epoch))
      .digest('base64url');
  return {
    token,
    matches(id, port, epoch, given) {
      const expected = Buffer.from(token(id, port, epoch));
      const actual = Buffer.from(given);
      return expected.length === actual.length && timingSafeEqual(expected, actual);
    },
  };
}
