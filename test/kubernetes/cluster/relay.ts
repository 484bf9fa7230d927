/**
 * Leads into a cluster that has a network of its own: `node relay.ts SOCKET PORT` listens on the unix socket,
 * whose name both sides of the wall can see, and passes each connection on to that port of the loopback it is
 * on. `relayFrom` is the other half.
 */
import { rmSync } from 'node:fs';
import { createConnection, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

function join(one: Socket, other: Socket): void {
  one.pipe(other).pipe(one);
  one.on('error', () => other.destroy());
  other.on('error', () => one.destroy());
  one.on('close', () => other.destroy());
  other.on('close', () => one.destroy());
}

/** Listens on a free port of this loopback and passes connections on to the socket. */
export async function relayFrom(socketPath: string): Promise<{ port: number; server: Server }> {
  const server = createServer({ noDelay: true }, (socket) => join(socket, createConnection(socketPath)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  server.unref();
  return { port: (server.address() as AddressInfo).port, server };
}

if (import.meta.main) {
  const [socketPath, port] = process.argv.slice(2) as [string, string];
  rmSync(socketPath, { force: true });
  createServer((socket) =>
    join(socket, createConnection({ host: '127.0.0.1', port: Number(port), noDelay: true })),
  ).listen(socketPath);
}
