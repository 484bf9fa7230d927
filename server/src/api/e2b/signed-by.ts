/**
 * Finds the sandbox whose token signed an address. With one address for all sandboxes, what a client signs names none, so
 * each has to be tried; those that clients were told of lately first. Strangers can make us do this, so it is limited.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { SandboxRecords } from '../../control/records/sandboxes.ts';
import { rateLimit } from '../rate-limit.ts';
import type { AccessTokens, SignedFile } from './access-tokens.ts';

export interface SignedBy {
  find(signed: SignedFile, signature: string): SandboxId | undefined;
  /** A client was given access to it. */
  told(id: SandboxId): void;
}

const RECENT = 500;
const SEARCHES = { perSecond: 20, burst: 100 };

export function signedBy(sandboxes: Pick<SandboxRecords, 'list'>, tokens: AccessTokens): SignedBy {
  const recent = new Set<SandboxId>();
  const limit = rateLimit(SEARCHES);

  function told(id: SandboxId): void {
    recent.delete(id);
    recent.add(id);
    for (const oldest of recent) {
      if (recent.size <= RECENT) break;
      recent.delete(oldest);
    }
  }

  return {
    told,
    find(signed, signature) {
      const fits = (id: SandboxId) => tokens.isSignature(id, signed, signature);
      for (const id of recent) if (fits(id)) return id;
      const waitMs = limit.take('search');
      if (waitMs > 0)
        throw new CayError('resource_exhausted', 'Too many signed addresses at once', { details: { retryAfterMs: Math.ceil(waitMs) } });
      const found = sandboxes.list({}).find(({ id }) => fits(id))?.id;
      if (found) told(found);
      return found;
    },
  };
}
