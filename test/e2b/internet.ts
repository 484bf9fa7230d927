/**
 * What stands for the internet: a proxy of the operator on loopback, which answers for public addresses and
 * knows no others. Every address speaks HTTP on port 80 and HTTPS on port 443, and says which one it is.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { UpstreamProxy } from '../../server/src/egress/carrier/upstream-proxy.ts';
import { type Authority, newAuthority } from '../../server/src/egress/tls/authority.ts';

export interface Internet extends Disposable {
  readonly proxy: UpstreamProxy;
  /** What was connected to, as `address:port`, the latest last. */
  readonly asked: string[];
}

/** `addresses` are those that answer; the authority signs for every name. */
export async function openInternet(addresses: readonly string[], authority: Authority): Promise<Internet> {
  const asked: string[] = [];
  const sockets = new Set<Socket>();
  const answer: RequestListener = ({ url, headers }, response) => {
    if (url === '/generate_204') response.writeHead(204).end();
    else response.end(JSON.stringify({ host: headers.host, key: headers['x-key'] ?? null }));
  };
  const plain = createServer(answer);
  // For programs that connect to an address, and ask for no name.
  const { key, certificate: cert } = newAuthority();
  const secure = createSecureServer(
    { key, cert, SNICallback: (name, done) => done(null, authority.contextFor(name)) },
    answer,
  );
  const proxy = createServer();
  proxy.on('connect', ({ url = '' }: IncomingMessage, socket: Socket) => {
    asked.push(url);
    sockets.add(socket.on('error', () => {}));
    const [address = '', port] = url.split(':');
    const behind = { 80: plain, 443: secure }[Number(port)];
    if (!behind || !addresses.includes(address))
      return void socket.end('HTTP/1.1 504 Nobody Is There\r\n\r\n');
    const target = connect((behind.address() as AddressInfo).port, '127.0.0.1');
    sockets.add(target.on('error', () => socket.destroy()));
    target.once('connect', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(target).pipe(socket);
    });
  });
  const servers: Server[] = [plain, secure as unknown as Server, proxy];
  for (const server of servers) {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }
  return {
    proxy: { kind: 'http', host: '127.0.0.1', port: (proxy.address() as AddressInfo).port },
    asked,
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy();
      for (const server of servers) {
        server.closeAllConnections();
        server.close();
      }
    },
  };
}
