import { createHmac, timingSafeEqual } from 'node:crypto';
import type { ArchiveSeal } from '../../backends/backend.ts';

/** Signs archives with a secret of this installation, so that it recognises archives of others. */
export function archiveSeal(secret: Uint8Array): ArchiveSeal {
  const mac = (digest: string) => createHmac('sha256', secret).update(`cay-archive\n${digest}`).digest();
  return {
    sign: (digest) => mac(digest).toString('base64url'),
    verify(digest, signature) {
      const [expected, given] = [mac(digest), Buffer.from(signature, 'base64url')];
      return given.length === expected.length && timingSafeEqual(given, expected);
    },
  };
}
