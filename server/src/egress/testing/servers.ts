/** Servers on loopback and worlds, closed after each test. */
import { once } from 'node:events';
import type { IncomingMessage, Server as HttpServer } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { NetworkPolicy } from '@cay/sdk/protocol';
import { afterEach } from 'vitest';
import { WebSocketServer } from 'ws';
import { openWorld, type World } from './program.ts';

export const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).toReversed()) await close();
});

export function world(
  policy: NetworkPolicy | NetworkPolicy[],
  options: Parameters<typeof openWorld>[0] = {},
): World {
  const made = openWorld(options);
  opened.push(() => made.egress.close());
  made.egress.policies.set(made.sandbox, Array.isArray(policy) ? policy : [policy]);
  return made;
}

export async function listen(server: Server | HttpServer, host = '127.0.0.1', port = 0): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  opened.push(() => new Promise((done) => void server.close(done)));
  opened.push(() => ('closeAllConnections' in server ? server.closeAllConnections() : undefined));
  return (server.address() as AddressInfo).port;
}

/** A server of raw bytes that sends back what it gets, in capitals, and ends when the client has. */
export async function echoServer(host?: string): Promise<{ port: number; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (chunk) => socket.write(chunk.toString().toUpperCase()));
    socket.on('end', () => socket.end('BYE'));
  });
  const port = await listen(server, host);
  opened.push(() => sockets.forEach((socket) => socket.destroy()));
  return { port, sockets };
}

/** Speaks WebSocket: each message comes back with `echo` before it. */
export function echoWebSockets(
  server: HttpServer | HttpsServer,
  onConnection: (request: IncomingMessage) => void,
): void {
  new WebSocketServer({ server }).on('connection', (socket, request) => {
    onConnection(request);
    socket.on('message', (data: Buffer) => socket.send(`echo ${data.toString()}`));
  });
}
