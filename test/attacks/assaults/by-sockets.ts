/** What a client can do with a WebSocket that it has opened. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Target } from '../support/target.ts';
import { again, type Assault } from './assault.ts';

const LISTEN = `
import socket, time
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
server.bind(('127.0.0.1', 3000))
server.listen(64)
time.sleep(100000)
`;
/** Masked with zeros. */
const EMPTY = Buffer.from([0x82, 0x80, 0, 0, 0, 0]);
const PING = Buffer.concat([Buffer.from([0x89, 0x80 | 125, 0, 0, 0, 0]), Buffer.alloc(125)]);
const FULL = Buffer.concat([
  Buffer.from([0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]),
  Buffer.alloc(0xffff),
]);

/** An upgraded connection, whose answers are not read any more. */
async function upgraded({ host, port, alice }: Target, path: string): Promise<Socket> {
  const socket = connect({ host, port });
  socket.on('error', () => {});
  socket.write(
    `GET ${path} HTTP/1.1\r\nHost: ${host}:${port}\r\nAuthorization: Bearer ${alice.key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n\r\n`,
  );
  await once(socket, 'data');
  socket.pause();
  return socket;
}

/** Sends the same for as long as it is taken. */
async function flood(socket: Socket, frames: Buffer, signal: AbortSignal, done: () => void): Promise<void> {
  while (!signal.aborted && !socket.destroyed) {
    if (!socket.write(frames)) await taken(socket);
    done();
  }
}

/** Resolves when there is room to send more, or never will be. */
function taken(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      socket.off('drain', settle).off('close', settle);
      resolve();
    };
    socket.on('drain', settle).on('close', settle);
  });
}

function flooding(name: string, first: Buffer, frames: Buffer): Assault {
  return {
    name,
    async open(target) {
      const { id } = await target.alice.create({ cmd: ['python3', '-c', LISTEN] });
      const many = Buffer.concat(Array.from({ length: Math.ceil(65_536 / frames.length) }, () => frames));
      return {
        run: (signal, done) =>
          again(2, signal, async () => {
            const socket = await upgraded(target, `/v1/sandboxes/${id}/ports/3000/tcp`);
            signal.addEventListener('abort', () => socket.destroy(), { once: true });
            socket.write(first);
            await flood(socket, many, signal, done);
            socket.destroy();
          }),
      };
    },
  };
}

export const BY_SOCKETS: readonly Assault[] = [
  flooding('empty messages', Buffer.concat(Array.from({ length: 14 }, () => FULL)), EMPTY),
  flooding('pings that nobody reads the answers of', Buffer.alloc(0), PING),
];
