/**
 * Who may see a private port: whoever has the token of that sandbox and port. It is derived from a
 * secret of this installation, so nothing has to be stored, and it says nothing about the API key.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { SandboxId } from '@cay/sdk/protocol';

export interface PreviewTokens {
  token(id: SandboxId, port: number): string;
  matches(id: SandboxId, port: number, token: string): boolean;
}

export function previewTokens(secret: Uint8Array): PreviewTokens {
  const token = (id: SandboxId, port: number) => createHmac('sha256', secret).update(`${id}:${port}`).digest('base64url');
  return {
    token,
    matches(id, port, given) {
      const expected = Buffer.from(token(id, port));
      const actual = Buffer.from(given);
      return expected.length === actual.length && timingSafeEqual(expected, actual);
    },
  };
}
