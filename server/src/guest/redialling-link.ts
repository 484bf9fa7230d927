/**
 * A link to a guest that listens, and so has to be dialled: each time the connection ends it is
 * dialled again, at once and then less and less often, until there is nothing left to dial.
 */
import type { Duplex } from 'node:stream';
import type { ConnectOptions, ServerHello } from './connection.ts';
import { connectGuest, type GuestClient } from './guest-client.ts';
import { guestLink, type GuestLink } from './guest-link.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

export interface RedialOptions extends ServerHello {
  /** Makes a byte stream to the guest. */
  dial(signal: AbortSignal): Promise<Duplex>;
  /**
   * Makes a better connection of the one that was dialled, or gives that back. When it rejects the guest is
   * dialled again.
   */
  improve?(client: GuestClient, options: ConnectOptions): Promise<GuestClient>;
  /**
   * Why there is no use in dialling again; `undefined` if there may be. A rejection means that nobody knows.
   */
  whyGone(): Promise<string | undefined>;
}

const FIRST_DELAY_MS = 20;
const MAX_DELAY_MS = 1000;
/** A connection that lasted this long is not counted as a failed attempt. */
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
      await sleep(delayMs, closing.signal);
      delayMs = Math.min(Math.max(FIRST_DELAY_MS, delayMs * 2), MAX_DELAY_MS);
      try {
        const transport = await dial(closing.signal);
        const call = { ...hello, signal: closing.signal };
        const client = await connectGuest(transport, call);
        const best = improve ? await improve(client, call) : client;
        connectedAt = performance.now();
        return link.adopt(best);
      } catch {
        // Whatever went wrong: either there is no use in trying again, or it is tried again.
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

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  if (ms === 0 || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
    signal.addEventListener('abort', done, { once: true });
  });
}
