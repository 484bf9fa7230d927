/** Listens on a unix socket for the guest of one sandbox, which dials and redials, and links to it. */
import type { Socket } from 'node:net';
import { CayError } from '@cay/sdk/protocol';
import type { ServerHello } from './connection.ts';
import type { EgressOfGuest } from './egress-streams.ts';
import { dialledSocket } from './dialled-socket.ts';
import { connectGuest } from './guest-client.ts';
import { guestLink, type GuestLink, type GuestLinkOptions, type QuiesceOptions } from './guest-link.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

export interface ListenOptions extends Omit<GuestLinkOptions, 'sandbox'> {
  /** Called for each connection, because limits change. */
  hello: () => ServerHello;
  /** Who may dial. Default: only the server's own user. */
  owner?: { uid: number; gid: number };
  /** Default 0o600. */
  mode?: number;
  helloTimeoutMs?: number;
  /** What serves the lookups and connections of programs inside. Absent: egress is off. */
  egress?: EgressOfGuest | undefined;
}

export interface GuestListener extends Omit<GuestLink, 'adopt' | 'close' | 'quiesce'> {
  /** Like the link's `quiesce`. The socket is also closed until `resume`, so the guest cannot reconnect. */
  quiesce(options: QuiesceOptions): Promise<() => Promise<void>>;
  /** Closes the link and removes the socket, unless another server has replaced it. */
  close(reason?: string): Promise<void>;
}

/** Connections that have not said hello yet; one guest needs one. */
const MAX_PENDING = 4;

export async function listenForGuest(socketPath: string, options: ListenOptions): Promise<GuestListener> {
  const { hello, owner, mode = 0o600, helloTimeoutMs, egress, ...linkOptions } = options;
  const link = guestLink({ ...linkOptions, sandbox: hello().sandbox });
  const pending = new Set<Socket>();
  const socket = dialledSocket(socketPath, {
    owner,
    mode,
    onConnection: (connection) => inBackground(greet(connection), ignoreFailure),
  });
  let closed = false;
  let quiesced = false;

  async function greet(connection: Socket): Promise<void> {
    pending.add(connection);
    for (const oldest of pending) {
      if (pending.size <= MAX_PENDING) break;
      pending.delete(oldest);
      oldest.destroy();
    }
    try {
      link.adopt(await connectGuest(connection, { ...hello(), helloTimeoutMs, egress }));
    } catch {
      // The transport is destroyed; a real guest redials.
    } finally {
      pending.delete(connection);
    }
  }

  try {
    await socket.open();
  } catch (error) {
    await socket.shut();
    throw error;
  }

  return {
    guest: link.guest,
    get current() {
      return link.current;
    },
    ready: link.ready,
    async quiesce(quiesceOptions) {
      if (quiesced)
        throw new CayError('conflict', `The guest of sandbox "${hello().sandbox}" is being quiesced already`);
      quiesced = true;
      const resume = await link.quiesce(quiesceOptions, async () => {
        await socket.shut();
        for (const connection of pending) connection.destroy();
      });
      return async () => {
        // A failure is retried by the socket itself; meanwhile calls wait for the guest as usual.
        if (!closed) await socket.open().catch(() => {});
        quiesced = false;
        resume();
      };
    },
    async close(reason) {
      closed = true;
      link.close(reason);
      for (const connection of pending) connection.destroy();
      await socket.shut();
    },
  };
}
