/** Listens for the guest of one sandbox, which dials and dials again, and links to it. */
import type { Socket } from 'node:net';
import { CayError } from '@cay/sdk/protocol';
import type { ServerHello } from './connection.ts';
import { dialledSocket } from './dialled-socket.ts';
import { connectGuest } from './guest-client.ts';
import { guestLink, type GuestLink, type GuestLinkOptions, type QuiesceOptions } from './guest-link.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

export interface ListenOptions extends Omit<GuestLinkOptions, 'sandbox'> {
  /** Asked for at each connection, as limits change. */
  hello: () => ServerHello;
  /** Who may dial. Default: only the server's own user. */
  owner?: { uid: number; gid: number };
  /** Default 0o600. */
  mode?: number;
  helloTimeoutMs?: number;
}

export interface GuestListener extends Omit<GuestLink, 'adopt' | 'close' | 'quiesce'> {
  /** As the link's `quiesce`; nobody can dial either until calls go on, however long that takes. */
  quiesce(options: QuiesceOptions): Promise<() => Promise<void>>;
  /** Closes the link and removes the socket, unless another server has put its own there. */
  close(reason?: string): Promise<void>;
}

/** Connections that have not said hello yet; one guest needs one. */
const MAX_STRANGERS = 4;

export async function listenForGuest(socketPath: string, options: ListenOptions): Promise<GuestListener> {
  const { hello, owner, mode = 0o600, helloTimeoutMs, ...linkOptions } = options;
  const link = guestLink({ ...linkOptions, sandbox: hello().sandbox });
  const strangers = new Set<Socket>();
  const socket = dialledSocket(socketPath, {
    owner,
    mode,
    onConnection: (stranger) => inBackground(greet(stranger), ignoreFailure),
  });
  let closed = false;
  let quiesced = false;

  async function greet(stranger: Socket): Promise<void> {
    strangers.add(stranger);
    for (const oldest of strangers) {
      if (strangers.size <= MAX_STRANGERS) break;
      strangers.delete(oldest);
      oldest.destroy();
    }
    try {
      link.adopt(await connectGuest(stranger, { ...hello(), helloTimeoutMs }));
    } catch {
      // The transport is destroyed; a real guest dials again.
    } finally {
      strangers.delete(stranger);
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
      const goOn = await link.quiesce(quiesceOptions, async () => {
        await socket.shut();
        for (const stranger of strangers) stranger.destroy();
      });
      return async () => {
        // What fails now is tried again, and calls wait for the guest as they do whenever it is not there.
        if (!closed) await socket.open().catch(() => {});
        quiesced = false;
        goOn();
      };
    },
    async close(reason) {
      closed = true;
      link.close(reason);
      for (const stranger of strangers) stranger.destroy();
      await socket.shut();
    },
  };
}
