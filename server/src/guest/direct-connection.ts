/**
 * The direct way to a guest, which has to be opened over another one.
 *
 * That other way is trusted: whoever has it is the server. Over it the guest is asked to listen on a port for
 * who has a key that was made for this, and which nobody else ever sees. The link then moves to a connection
 * to that port, sealed with the key. While the key is good a connection that was cut is made anew without the
 * other way; where the port cannot be reached the link stays on the other way.
 */
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { dialNoise } from '../lib/noise/noise-stream.ts';
import type { ConnectOptions } from './connection.ts';
import { connectGuest, type GuestClient } from './guest-client.ts';
import type { RedialOptions } from './redialling-link.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

export interface DirectWayOptions {
  /** The other way. */
  dial(signal: AbortSignal): Promise<Duplex>;
  /** Where the guest can be dialled. */
  host: string;
  port: number;
  /** The guest cannot be reached directly, and so is not. */
  onRefused(error: unknown): void;
  /** It can. */
  onReached(): void;
  /** How long each step to the direct connection may take. Default 2,000. */
  timeoutMs?: number;
  /** How often the guest is asked whether it is there, and so how long it has to answer. Default 30,000. */
  pingMs?: number;
}

/** What both sides have to agree on, as in `guest/src/sealed.rs`. */
const PROLOGUE = Buffer.from('cay-guest/1');
const KEY_BYTES = 32;

export function directWay(options: DirectWayOptions): Required<Pick<RedialOptions, 'dial' | 'improve'>> {
  const { host, port, onRefused, onReached, timeoutMs = 2_000, pingMs = 30_000 } = options;
  let key: Buffer | undefined;
  /** The key of a connection that has not proven itself yet. */
  let trying: Buffer | undefined;
  let isDoubted = false;

  const dialDirectly = (secret: Buffer, signal?: AbortSignal) =>
    dialNoise({ host, port, key: secret, prologue: PROLOGUE, timeoutMs, signal });

  function reached(client: GuestClient, secret: Buffer): GuestClient {
    key = secret;
    onReached();
    keepAsking(client, pingMs);
    return client;
  }

  async function moved(client: GuestClient, hello: ConnectOptions): Promise<GuestClient> {
    const fresh = randomBytes(KEY_BYTES);
    const limit = AbortSignal.timeout(timeoutMs);
    await client.listen(
      { port, key: fresh },
      { signal: hello.signal ? AbortSignal.any([hello.signal, limit]) : limit },
    );
    const better = await connectGuest(await dialDirectly(fresh, hello.signal), {
      ...hello,
      helloTimeoutMs: timeoutMs,
    });
    client.close('the guest is reached directly');
    return reached(better, fresh);
  }

  return {
    async dial(signal) {
      trying = key;
      key = undefined;
      if (trying) {
        try {
          return await dialDirectly(trying, signal);
        } catch {
          // The other way is there for whatever the reason is: the guest may have begun anew.
          trying = undefined;
        }
      }
      return options.dial(signal);
    },

    async improve(client, hello) {
      if (trying) return reached(client, trying);
      if (isDoubted) {
        isDoubted = false;
        return client;
      }
      try {
        return await moved(client, hello);
      } catch (error) {
        if (hello.signal?.aborted) return client;
        onRefused(error);
        // The guest may have left the other way for a connection that came to nothing: next time it is not
        // led there.
        isDoubted = client.connection.error !== undefined;
        if (isDoubted) throw error;
        return client;
      }
    },
  };
}

/**
 * A connection whose other end is gone without a word would otherwise stay for as long as nobody asks for
 * anything.
 */
function keepAsking(client: GuestClient, everyMs: number): void {
  let answered = true;
  const asking = setInterval(() => {
    if (!answered) return client.close('the guest does not answer');
    answered = false;
    client.ping().then(
      () => (answered = true),
      () => {},
    );
  }, everyMs).unref();
  inBackground(
    client.closed.then(() => clearInterval(asking)),
    ignoreFailure,
  );
}
