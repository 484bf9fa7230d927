import { createServer, type Socket } from 'node:net';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { pipeline } from 'node:stream';
import { connectionStream } from '../../guest/connection-stream.ts';
import type { Connection } from '../../guest/guest.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

/** Connects to the port inside, and counts until the connection is closed. */
export type ConnectInside = (signal: AbortSignal) => Promise<Connection & Disposable>;

export interface HostListener {
  readonly sandbox: SandboxId;
  readonly hostPort: number;
  /** Ends the connections, too. */
  close(): void;
}

/** Through one port of the machine, at once. */
const MAX_CONNECTIONS = 1000;

/** Listens on a port of the machine. Rejects `conflict` for one that is taken. */
export function listenOnHost(
  { sandbox, address, hostPort }: { sandbox: SandboxId; address: string; hostPort: number },
  connect: ConnectInside,
): Promise<HostListener> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', ignoreFailure);
    inBackground(carry(socket, connect), () => socket.resetAndDestroy());
  });
  server.maxConnections = MAX_CONNECTIONS;
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => reject(cannotListen(address, hostPort, cause)));
    server.listen({ host: address, port: hostPort, exclusive: true }, () => {
      // A failure to accept, such as too many open files, is of that connection alone.
      server.on('error', ignoreFailure);
      resolve({
        sandbox,
        hostPort,
        close() {
          server.close();
          for (const socket of sockets) socket.destroy();
        },
      });
    });
  });
}

async function carry(socket: Socket, connect: ConnectInside): Promise<void> {
  const gone = new AbortController();
  const onGone = () => gone.abort();
  socket.once('close', onGone);
  const connection = await connect(gone.signal);
  socket.off('close', onGone);
  const inside = connectionStream(connection);
  inside.once('close', () => connection[Symbol.dispose]());
  // The socket may have closed while the last step ended.
  if (socket.destroyed) return void inside.destroy();
  let open = 2;
  const ended = (error: unknown) => {
    open--;
    // An end of one direction leaves the other; a failure ends both.
    if (!error && open > 0) return;
    if (error) socket.resetAndDestroy();
    inside.destroy();
  };
  pipeline(socket, inside, ended);
  pipeline(inside, socket, ended);
}

/** The error of a port that cannot be listened on. */
export function cannotListen(address: string, port: number, cause: NodeJS.ErrnoException): CayError {
  const where = `port ${port} of ${address}`;
  if (cause.code === 'EADDRINUSE')
    return new CayError('conflict', `Cannot publish on ${where}: another program of the machine uses it`, {
      details: { hostPort: port },
      hint: 'choose another port, or 0 for a free one',
      cause,
    });
  return new CayError('failed_precondition', `Cannot publish on ${where}: ${systemReason(cause)}`, {
    details: { hostPort: port },
    cause,
  });
}
