import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { openWorld, textOf } from '../testing/program.ts';
import { parseUpstreamProxy } from './upstream-proxy.ts';

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).toReversed()) await close();
});

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  opened.push(() => new Promise((done) => void server.close(done)));
  return (server.address() as AddressInfo).port;
}

/** Joins two sockets, as a proxy does. */
function join(one: Duplex, port: number, host: string, ready: (socket: Socket) => void): void {
  const other = connect(port, host, () => {
    ready(other);
    one.pipe(other);
    other.pipe(one);
  });
  for (const socket of [one, other]) socket.on('error', () => {});
  opened.push(() => [one, other].forEach((socket) => socket.destroy()));
}

async function httpProxy(asked: string[]): Promise<number> {
  const server = createHttpServer();
  server.on('connect', (message, socket: Duplex) => {
    asked.push(`${message.url} ${message.headers['proxy-authorization']}`);
    const [host = '', port = ''] = message.url!.split(':');
    if (message.headers['proxy-authorization'] === undefined) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
      return;
    }
    join(socket, Number(port), host, () => socket.write('HTTP/1.1 200 OK\r\nX: y\r\n\r\n'));
  });
  return listen(server);
}

/** As much of SOCKS5 as a proxy with a password needs. */
async function socksProxy(asked: string[]): Promise<number> {
  const server = createServer((socket) => {
    let step = 0;
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      step++;
      if (step === 1) socket.write(Buffer.from([5, chunk.includes(2, 2) ? 2 : 255]));
      else if (step === 2) {
        const user = chunk.subarray(2, 2 + chunk[1]!).toString();
        asked.push(user);
        socket.write(Buffer.from([1, user === 'me' ? 0 : 1]));
      } else if (step === 3) {
        const host =
          chunk[3] === 1 ? chunk.subarray(4, 8).join('.') : chunk.subarray(5, 5 + chunk[4]!).toString();
        asked.push(host);
        socket.removeAllListeners('data');
        join(socket, chunk.readUInt16BE(chunk.length - 2), chunk[3] === 1 ? host : '127.0.0.1', () =>
          socket.write(Buffer.from([5, 0, 0, 1, 127, 0, 0, 1, 0, 0])),
        );
      }
    });
  });
  return listen(server);
}

async function through(proxy: string): Promise<string> {
  const target = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => socket.end(`got ${chunk.toString()}`));
  });
  const port = await listen(target);
  const { egress, sandbox, names, connect: dial } = openWorld({ proxy: parseUpstreamProxy(proxy) });
  opened.push(() => egress.close());
  egress.policies.set(sandbox, ['public']);
  names.set('x.example.org', ['127.0.0.1']);
  const program = dial({ name: 'x.example.org', port });
  program.socket.write('hello\n');
  const refused = program.refused.then((error) => error.message);
  return Promise.race([textOf(program.socket).catch(() => refused), refused]);
}

describe("the operator's proxy", () => {
  it('is asked for the pinned address by HTTP CONNECT', async () => {
    const asked: string[] = [];
    expect(await through(`http://me:p%40ss@127.0.0.1:${await httpProxy(asked)}`)).toBe('got hello\n');
    expect(asked[0]).toMatch(
      new RegExp(`^127.0.0.1:\\d+ Basic ${Buffer.from('me:p@ss').toString('base64')}$`),
    );
  });

  it('is asked by SOCKS5, for the address or for the name', async () => {
    const asked: string[] = [];
    const port = await socksProxy(asked);
    expect(await through(`socks5://me:pw@127.0.0.1:${port}`)).toBe('got hello\n');
    expect(await through(`socks5h://me:pw@127.0.0.1:${port}`)).toBe('got hello\n');
    expect(asked).toEqual(['me', '127.0.0.1', 'me', 'x.example.org']);
  });

  it('that refuses is reported as a target that does not answer, without its credentials', async () => {
    expect(await through(`http://127.0.0.1:${await httpProxy([])}`)).toContain('the proxy answers 407');
    const refused = await through(`socks5://you:secret@127.0.0.1:${await socksProxy([])}`);
    expect(refused).toContain('refuses the credentials');
    expect(refused).not.toContain('secret');
  });

  it.each(['ftp://x', 'nonsense', 'http://'])('%s is no proxy', (text) => {
    expect(() => parseUpstreamProxy(text)).toThrow('A proxy is');
  });
});
