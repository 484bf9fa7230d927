/**
 * A link to a guest that the server dials. When the connection is lost it reconnects: at once, then with
 * exponential backoff, until `whyGone` says that the guest is gone.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import type { ConnectOptions, ServerHello } from './connection.ts';
import { connectGuest, type GuestClient } from './guest-client.ts';
import { guestLink, type GuestLink } from './guest-link.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

export interface RedialOptions extends ServerHello, Pick<ConnectOptions, 'egress'> {
  /** Opens a byte stream to the guest. */
  dial(signal: AbortSignal): Promise<Duplex>;
  /**
   * Replaces the dialled connection by a better one, or returns it. If it rejects, the guest is redialled.
   */
  improve?(client: GuestClient, options: ConnectOptions): Promise<GuestClient>;
  /** Why redialling is useless: the link is then closed. `undefined`, or a rejection, means: try again. */
  whyGone(): Promise<string | undefined>;
}

const FIRST_DELAY_MS = 20;
const MAX_DELAY_MS = 1000;
/** A connection that lasted this long resets the backoff. */
const STABLE_MS = 1000;

export function redialling(options: RedialOptions): GuestLink {
  const { dial, improve, whyGone, ...hello } = options;
  const closing = new AbortController();
  let delayMs = 0;
  let connectedAt = 0;

  const link = guestLink({
    sandbox: hello.sandbox,
    onLost: () => {
      if (performance.now() - connectedAt > STABLE_MS) delayMs = 0;
      inBackground(redial(), ignoreFailure);
    },
  });

  async function redial(): Promise<void> {
    while (!closing.signal.aborted) {
      if (delayMs > 0) await sleep(delayMs, undefined, { signal: closing.signal }).catch(() => {});
      delayMs = Math.min(Math.max(FIRST_DELAY_MS, delayMs * 2), MAX_DELAY_MS);
      try {
        const transport = await dial(closing.signal);
        const call = { ...hello, signal: closing.signal };
        const client = await connectGuest(transport, call);
        const best = improve ? await improve(client, call) : client;
        connectedAt = performance.now();
        return link.adopt(best);
      } catch {
        // Whatever the error is, `whyGone` decides whether to try again.
        const reason = await whyGone().catch(() => undefined);
        if (reason !== undefined) return close(reason);
      }
    }
  }

  function close(reason?: string): void {
    closing.abort();
    link.close(reason);
  }

  inBackground(redial(), ignoreFailure);
  return {
    guest: link.guest,
    get current() {
      return link.current;
    },
    ready: link.ready,
    adopt: link.adopt,
    quiesce: link.quiesce,
    close,
  };
}
