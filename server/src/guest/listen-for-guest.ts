/**
 * A unix socket that the guest of one sandbox dials, and dials again.
 *
 * The socket appears under its name only when it has its owner and mode and is listening, and
 * takes the place of one that an earlier server left there.
 */
import { CayError } from '@cay/sdk/protocol';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, chown, lstat, rename, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { Buffer } from 'node:buffer';
import type { ServerHello } from './connection.ts';
import { connectGuest } from './guest-client.ts';
import { guestLink, type GuestLink, type GuestLinkOptions } from './guest-link.ts';

export interface ListenOptions extends Omit<GuestLinkOptions, 'sandbox'> {
  /** Asked for at each connection, as limits change. */
  hello: () => ServerHello;
  /** Who may dial. Default: only the server's own user. */
  owner?: { uid: number; gid: number };
  /** Default 0o600. */
  mode?: number;
  helloTimeoutMs?: number;
}

export interface GuestListener extends Omit<GuestLink, 'adopt' | 'close'> {
  /** Closes the link and removes the socket, unless another server has put its own there. */
  close(reason?: string): Promise<void>;
}

/** `sun_path` has 108 bytes, the last of them zero. */
const MAX_SOCKET_PATH = 107;
/** Connections that have not said hello yet; one guest needs one. */
const MAX_STRANGERS = 4;

export async function listenForGuest(socketPath: string, options: ListenOptions): Promise<GuestListener> {
  const { hello, owner, mode = 0o600, helloTimeoutMs, ...linkOptions } = options;
  const link = guestLink({ ...linkOptions, sandbox: hello().sandbox });
  const strangers = new Set<Socket>();
  const server = createServer((socket) => void greet(socket));

  async function greet(socket: Socket): Promise<void> {
    strangers.add(socket);
    for (const oldest of strangers) {
      if (strangers.size <= MAX_STRANGERS) break;
      strangers.delete(oldest);
      oldest.destroy();
    }
    try {
      link.adopt(await connectGuest(socket, { ...hello(), helloTimeoutMs }));
    } catch {
      // The transport is destroyed; a real guest dials again.
    } finally {
      strangers.delete(socket);
    }
  }

  const inode = await listenAt(server, socketPath, { owner, mode });

  return {
    guest: link.guest,
    get current() {
      return link.current;
    },
    ready: link.ready,
    async close(reason) {
      const closed = new Promise((resolve) => server.close(resolve));
      link.close(reason);
      for (const socket of strangers) socket.destroy();
      const there = await lstat(socketPath, { bigint: true }).catch(() => undefined);
      if (there?.ino === inode) await rm(socketPath, { force: true });
      await closed;
    },
  };
}

async function listenAt(server: Server, path: string, { owner, mode }: { owner: ListenOptions['owner']; mode: number }): Promise<bigint> {
  const temporary = `${path}.${randomBytes(3).toString('hex')}`;
  if (Buffer.byteLength(temporary) > MAX_SOCKET_PATH) {
    throw new CayError('invalid_argument', `Cannot listen at "${path}": the path is longer than ${MAX_SOCKET_PATH - 7} bytes`);
  }
  try {
    const listening = once(server, 'listening');
    server.listen(temporary);
    await listening;
    await chmod(temporary, mode);
    if (owner) await chown(temporary, owner.uid, owner.gid);
    await rename(temporary, path);
    return (await lstat(path, { bigint: true })).ino;
  } catch (cause) {
    server.close();
    await rm(temporary, { force: true });
    throw new CayError('unavailable', `Cannot listen at "${path}": ${(cause as Error).message}`, { cause });
  }
}
