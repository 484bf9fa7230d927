/**
 * Finds the sandbox whose token signed an address. With one address for all sandboxes, what a client signs
 * names none, so each has to be tried. Strangers can make us do this, so that each address of the network may
 * miss only so often, and an address that was found once is found again without a search.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { SandboxRecords } from '../../records/sandboxes.ts';
import { rateLimit } from '../http/rate-limit.ts';
import { same, signatureOf, type AccessTokens, type SignedFile } from './access-tokens.ts';

export interface SignedBy {
  /**
   * Rejects `resource_exhausted` for whoever had too many that nobody signed. `from` is the caller's address.
   */
  find(signed: SignedFile, signature: string, from: string): SandboxId | undefined;
  /** A client was given access to it, by this token. */
  told(id: SandboxId, token: string): void;
}

/** Those that clients were told of lately are tried first, and for everybody. */
const RECENT = 500;
const REMEMBERED = 10_000;
const SHAPE = /^v1_[A-Za-z0-9+/]{43}$/;
/** Of one network address. Behind a proxy that is everybody, so that it is as much as the search allows. */
const MISSES = { perSecond: 20, burst: 200 };
/** Through all that there are, of everybody together: that is what costs. */
const SEARCHES = { perSecond: 20, burst: 40 };
/** The list of all is kept for this long; who was told of a newer one since is among the recent. */
const LISTED_MS = 60_000;

export function signedBy(
  sandboxes: Pick<SandboxRecords, 'ids'>,
  tokens: Pick<AccessTokens, 'envd' | 'isSignature'>,
  now: () => number = () => performance.now(),
): SignedBy {
  /** With their tokens, which cost more to make than to sign with. */
  const recent = new Map<SandboxId, string>();
  const remembered = new Map<string, SandboxId>();
  const misses = rateLimit(MISSES, now);
  const searches = rateLimit(SEARCHES, now);
  let listed: { ids: SandboxId[]; atMs: number } | undefined;

  function told(id: SandboxId, token: string): void {
    recent.delete(id);
    recent.set(id, token);
    trim(recent, RECENT);
  }

  function everyId(): SandboxId[] {
    if (!listed || now() - listed.atMs > LISTED_MS) listed = { ids: sandboxes.ids(), atMs: now() };
    return listed.ids;
  }

  /** A token may have been revoked since it was told, so that what fits it is checked once more. */
  function search(
    signed: SignedFile,
    signature: string,
    fits: (id: SandboxId) => boolean,
  ): SandboxId | undefined {
    for (const [id, token] of recent) if (same(signatureOf(token, signed), signature) && fits(id)) return id;
    requireTurn(searches.take('all'));
    return everyId().find(fits);
  }

  return {
    told,
    find(signed, signature, from) {
      if (!SHAPE.test(signature)) return undefined;
      const fits = (id: SandboxId) => tokens.isSignature(id, signed, signature);
      const before = remembered.get(signature);
      if (before !== undefined && fits(before)) return before;
      requireTurn(misses.take(from));
      const found = search(signed, signature, fits);
      if (found === undefined) return undefined;
      // Only misses count.
      misses.giveBack(from);
      told(found, tokens.envd(found));
      remembered.set(signature, found);
      trim(remembered, REMEMBERED);
      return found;
    },
  };
}

function requireTurn(waitMs: number): void {
  if (waitMs > 0)
    throw new CayError('resource_exhausted', 'Too many signed addresses at once', {
      details: { retryAfterMs: Math.ceil(waitMs) },
    });
}

/** Forgets the oldest. */
function trim<K>(kept: Set<K> | Map<K, unknown>, most: number): void {
  for (const oldest of kept.keys()) {
    if (kept.size <= most) return;
    kept.delete(oldest);
  }
}
