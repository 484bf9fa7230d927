/**
 * Finds the sandbox whose token signed an address. With one address for all sandboxes a signed address names
 * none, so every token has to be tried. Anonymous clients can cause such searches, so the number of misses of
 * one network address is limited, and a found address is remembered.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Control, TokenSource } from '../../control/control.ts';
import { rateLimit } from '../http/rate-limit.ts';
import { same, signatureOf, type AccessTokens, type SignedFile } from './access-tokens.ts';

export interface SignedBy {
  /**
   * Throws `resource_exhausted` after too many signatures that fit no sandbox. `from` is the network address
   * of the client.
   */
  find(signed: SignedFile, signature: string, from: string): Promise<SandboxId | undefined>;
  /** Called when a client got the access token of a sandbox. */
  tokenGiven(id: SandboxId, token: string): void;
}

/** Sandboxes whose tokens were given out recently are tried first. */
const RECENT = 500;
const REMEMBERED = 10_000;
const SHAPE = /^v1_[A-Za-z0-9+/]{43}$/;
/**
 * Misses of one network address. A proxy may stand for all clients, so this allows as much as the searches
 * do.
 */
const MISSES = { perSecond: 20, burst: 200 };
/** Searches through all sandboxes, by all clients together: these are expensive. */
const SEARCHES = { perSecond: 20, burst: 40 };
/**
 * How long the list of all ids is kept. A newer sandbox whose token was given out is among the recent ones.
 */
const LISTED_MS = 60_000;

export function signedBy(
  control: Pick<Control, 'ids'> & { tokens: { epochs: Pick<TokenSource['epochs'], 'revoked'> } },
  tokens: Pick<AccessTokens, 'envd' | 'isSignature' | 'isSignatureIn'>,
  now: () => number = () => performance.now(),
): SignedBy {
  /** With their tokens, which are slower to derive than signatures are to check. */
  const recent = new Map<SandboxId, string>();
  const remembered = new Map<string, SandboxId>();
  const misses = rateLimit(MISSES, now);
  const searches = rateLimit(SEARCHES, now);
  let listed: { ids: { id: SandboxId; project: string }[]; atMs: number } | undefined;

  function tokenGiven(id: SandboxId, token: string): void {
    recent.delete(id);
    recent.set(id, token);
    trim(recent, RECENT);
  }

  async function everyId(): Promise<{ id: SandboxId; project: string }[]> {
    if (!listed || now() - listed.atMs > LISTED_MS) {
      const atMs = now();
      listed = { ids: await control.ids(), atMs };
    }
    return listed.ids;
  }

  /** Checks a match once more, because the token may have been revoked since it was given out. */
  async function search(signed: SignedFile, signature: string): Promise<SandboxId | undefined> {
    for (const [id, token] of recent)
      if (same(signatureOf(token, signed), signature) && (await tokens.isSignature(id, signed, signature)))
        return id;
    requireTurn(searches.take('all'));
    const ids = await everyId();
    // One read for all of them.
    const epochs = await control.tokens.epochs.revoked();
    return ids.find(({ id, project }) =>
      tokens.isSignatureIn(epochs.get(project) ?? 0, id, signed, signature),
    )?.id;
  }

  return {
    tokenGiven,
    async find(signed, signature, from) {
      if (!SHAPE.test(signature)) return undefined;
      const before = remembered.get(signature);
      if (before !== undefined && (await tokens.isSignature(before, signed, signature))) return before;
      requireTurn(misses.take(from));
      const found = await search(signed, signature);
      if (found === undefined) return undefined;
      // Only misses take from the limit.
      misses.giveBack(from);
      tokenGiven(found, await tokens.envd(found));
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

/** Removes the oldest entries. */
function trim<K>(kept: Set<K> | Map<K, unknown>, most: number): void {
  for (const oldest of kept.keys()) {
    if (kept.size <= most) return;
    kept.delete(oldest);
  }
}
