/**
 * A unix socket that an untrusted process may connect to as often as it likes.
 *
 * It appears under its name only when it has its owner and mode and is listening, and it replaces the socket
 * of an earlier server. A client that connects too often is refused by not listening for a while, which costs
 * the server nothing.
 */
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, chown, lstat, rename, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { Buffer } from 'node:buffer';

export interface DialledSocketOptions {
  /** Who may connect. Default: only the server's own user. */
  owner?: { uid: number; gid: number } | undefined;
  mode: number;
  onConnection(socket: Socket): void;
}

export interface DialledSocket {
  /**
   * Resolves when clients can connect; resets the rate limit. Does nothing if it is open. If it rejects, it
   * is retried until `shut`.
   */
  open(): Promise<void>;
  /**
   * Stops listening; existing connections stay. Removes the socket, unless another server has replaced it.
   */
  shut(): Promise<void>;
}

/** `sun_path` has 108 bytes, the last of them zero. */
const MAX_SOCKET_PATH = 107;
/** So many connections are accepted at once, and one more after each interval. */
const BURST = 16;
const INTERVAL_MS = 250;
/** How long it does not listen after too many connections. */
const REST_MS = 1_000;

export function dialledSocket(path: string, options: DialledSocketOptions): DialledSocket {
  let listening: Server | undefined;
  /** The inode of the socket that we have made. */
  let inode: bigint | undefined;
  let wanted = false;
  let resting: NodeJS.Timeout | undefined;
  let last: Promise<void> = Promise.resolve();
  let room = BURST;
  let counted = performance.now();

  /** Runs changes one after the other. */
  function inTurn(change: () => Promise<void>): Promise<void> {
    const done = last.then(change);
    last = done.catch(() => {});
    return done;
  }

  function connected(socket: Socket): void {
    const now = performance.now();
    room = Math.min(BURST, room + (now - counted) / INTERVAL_MS) - 1;
    counted = now;
    if (room < 1) rest();
    options.onConnection(socket);
  }

  function rest(): void {
    if (!wanted) return;
    listening?.close();
    listening = undefined;
    clearTimeout(resting);
    resting = setTimeout(() => void inTurn(listen).catch(rest), REST_MS);
  }

  async function listen(): Promise<void> {
    if (!wanted || listening) return;
    const server = createServer(connected);
    inode = await listenAt(server, path, options);
    listening = server;
  }

  return {
    open() {
      wanted = true;
      room = BURST;
      return inTurn(listen).catch((error: unknown) => {
        rest();
        throw error;
      });
    },
    shut() {
      wanted = false;
      clearTimeout(resting);
      return inTurn(async () => {
        const there = await lstat(path, { bigint: true }).catch(() => undefined);
        if (there && there.ino === inode) await rm(path, { force: true });
        listening?.close();
        listening = undefined;
      });
    },
  };
}

async function listenAt(
  server: Server,
  path: string,
  { owner, mode }: DialledSocketOptions,
): Promise<bigint> {
  const temporary = `${path}.${randomBytes(3).toString('hex')}`;
  if (Buffer.byteLength(temporary) > MAX_SOCKET_PATH) {
    throw new CayError(
      'invalid_argument',
      `Cannot listen at "${path}": the path is longer than ${MAX_SOCKET_PATH - 7} bytes`,
    );
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
    throw new CayError('unavailable', `Cannot listen at "${path}": ${systemReason(cause)}`, { cause });
  }
}
