/**
 * Reaches a guest over TCP instead of over a bridge.
 *
 * The bridge is a stream through the platform, such as a Kubernetes exec. It is authenticated by the
 * platform, but slow. Over it the guest is asked to listen on a TCP port with a fresh key that only the
 * server and the guest know. The link then moves to a Noise connection to that port. A lost direct connection
 * is dialled again with the same key, without the bridge. If the port cannot be reached the link stays on the
 * bridge.
 */
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { dialNoise } from '../lib/noise/noise-stream.ts';
import { withDeadline } from '../lib/timeout.ts';
import type { ConnectOptions } from './connection.ts';
import { connectGuest, type GuestClient } from './guest-client.ts';
import type { RedialOptions } from './redialling-link.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

export interface DirectConnectionOptions {
  /** Opens the bridge. */
  dial(signal: AbortSignal): Promise<Duplex>;
  /** Address of the guest. */
  host: string;
  port: number;
  /** Called when the guest cannot be reached directly; the link stays on the bridge. */
  onRefused(error: unknown): void;
  /** Called with each direct connection. */
  onReached(): void;
  /** Timeout of each step towards the direct connection. Default 2,000. */
  timeoutMs?: number;
  /** Interval of pings; a direct connection is closed if a ping is not answered in it. Default 30,000. */
  pingMs?: number;
}

/** What the next connection is made of. Each `dial` is followed by `improve` if the guest said hello. */
type State =
  /** `dial` opens the bridge, and `improve` tries to move to a direct connection. */
  | { name: 'bridge' }
  /** There is or was a direct connection with this key: `dial` tries it first. */
  | { name: 'direct'; key: Buffer }
  /** `dial` has reached the port with this key: `improve` keeps the connection. */
  | { name: 'dialled'; key: Buffer }
  /** The last attempt to move has cost the bridge: `improve` keeps the next bridge as it is, once. */
  | { name: 'distrusted' };

/** Both sides must use the same; the guest's is in `guest/src/transport/noise_stream.rs`. */
const PROLOGUE = Buffer.from('cay-guest/1');
const KEY_BYTES = 32;

export function directConnection(
  options: DirectConnectionOptions,
): Required<Pick<RedialOptions, 'dial' | 'improve'>> {
  const { host, port, onRefused, onReached, timeoutMs = 2_000, pingMs = 30_000 } = options;
  let state: State = { name: 'bridge' };

  const dialDirectly = (key: Buffer, signal?: AbortSignal) =>
    dialNoise({ host, port, key, prologue: PROLOGUE, timeoutMs, signal });

  function reached(client: GuestClient, key: Buffer): GuestClient {
    state = { name: 'direct', key };
    onReached();
    keepPinging(client, pingMs);
    return client;
  }

  async function moveFrom(bridge: GuestClient, hello: ConnectOptions): Promise<GuestClient> {
    const key = randomBytes(KEY_BYTES);
    const signal = hello.signal ? { signal: hello.signal } : {};
    await bridge.listen({ port, key }, withDeadline(signal, timeoutMs));
    const direct = await connectGuest(await dialDirectly(key, hello.signal), {
      ...hello,
      helloTimeoutMs: timeoutMs,
    });
    bridge.close('the guest is reached directly');
    return reached(direct, key);
  }

  return {
    async dial(signal) {
      const key = state.name === 'direct' ? state.key : undefined;
      if (state.name !== 'distrusted') state = { name: 'bridge' };
      if (key) {
        try {
          const stream = await dialDirectly(key, signal);
          state = { name: 'dialled', key };
          return stream;
        } catch {
          // Whatever the reason, the bridge may work: the guest may have restarted and lost the key.
        }
      }
      return options.dial(signal);
    },

    async improve(client, hello) {
      if (state.name === 'dialled') return reached(client, state.key);
      if (state.name === 'distrusted') {
        state = { name: 'bridge' };
        return client;
      }
      try {
        return await moveFrom(client, hello);
      } catch (error) {
        if (hello.signal?.aborted) return client;
        onRefused(error);
        if (!client.connection.error) return client;
        // The guest has left the bridge for a direct connection that failed.
        state = { name: 'distrusted' };
        throw error;
      }
    },
  };
}

/** Detects a peer that is gone without closing the connection, also while there are no calls. */
function keepPinging(client: GuestClient, everyMs: number): void {
  let answered = true;
  const timer = setInterval(() => {
    if (!answered) return client.close('the guest does not answer');
    answered = false;
    client.ping().then(
      () => (answered = true),
      () => {},
    );
  }, everyMs).unref();
  inBackground(
    client.closed.then(() => clearInterval(timer)),
    ignoreFailure,
  );
}
