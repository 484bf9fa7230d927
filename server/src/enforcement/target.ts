/**
 * What a sandbox must not reach, and by allowed ways does: servers that this process opens for the time of a
 * report, on one port of every address of this machine. They speak HTTP/1, HTTP/2, TLS, raw bytes and UDP,
 * and keep what they saw. Nothing that is not a part of the report may count, so every attempt carries a word
 * of its own.
 */
import { randomBytes } from 'node:crypto';
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttp2 } from 'node:http2';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createServer, isIP, type Server, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { createServer as createTls } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { type Authority, newAuthority, openAuthority } from '../egress/tls/authority.ts';

export interface Target {
  readonly port: number;
  /** Stands for the internet in the report: loopback to the kernel, public to the policy. */
  readonly address: string;
  /** The machine's own addresses that the target listens on, without loopback. */
  readonly own: readonly string[];
  /** The name of an abstract socket that it listens on. */
  readonly abstract: string;
  /** The authority of its certificates, in PEM. */
  readonly certificate: string;
  /** A word that nothing else has. */
  word(): string;
  /** Whether it was seen by any server of the target. */
  saw(text: string): boolean;
  /** How many connections and datagrams came. */
  arrivals(): number;
  close(): Promise<void>;
}

const ADDRESS = '127.83.0.1';
const MAX_SEEN = 4 * 1024 * 1024;
const MAX_CONNECTIONS = 2000;
/** Compressed by a thousand; made when it is first asked for. */
let bomb: Buffer | undefined;

export async function openTarget(): Promise<Target> {
  const authority = openAuthority(newAuthority());
  const abstract = `cay-enforcement-${randomBytes(9).toString('hex')}`;
  const seen: string[] = [];
  let bytes = 0;
  let arrivals = 0;
  const note = (text: string) => {
    bytes += text.length;
    seen.push(text);
    while (bytes > MAX_SEEN) bytes -= seen.shift()!.length;
  };
  const tcp = allProtocols(authority, note);
  const closers: (() => void)[] = [];
  const sockets = new Set<Socket>();

  function accept(socket: Socket): void {
    arrivals++;
    socket.on('error', () => {});
    if (sockets.size >= MAX_CONNECTIONS) return void socket.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.setTimeout(60_000, () => socket.destroy());
    tcp(socket);
  }

  async function listen(address: string, port: number): Promise<number | undefined> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, accept);
    if (!(await bound(server, () => server.listen({ host: address, port, ipv6Only: true }))))
      return undefined;
    closers.push(() => server.close());
    const { port: at } = server.address() as { port: number };
    const udp = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4');
    udp.on('message', (message, from) => {
      arrivals++;
      note(`udp ${message.toString('latin1')}`);
      udp.send(`echo ${message.toString('latin1').slice(0, 512)}`, from.port, from.address, () => {});
    });
    if (await bound(udp, () => udp.bind(at, address))) closers.push(() => udp.close());
    return at;
  }

  const port = await listen(ADDRESS, 0);
  if (port === undefined) throw new Error(`Cannot listen on ${ADDRESS}`);
  const own: string[] = [];
  await listen('127.0.0.1', port);
  await listen('::1', port);
  for (const { address, internal } of Object.values(networkInterfaces()).flatMap((all) => all ?? []))
    if (!internal && !address.startsWith('fe80') && (await listen(address, port)) !== undefined)
      own.push(address);
  const hidden = createServer(accept);
  if (await bound(hidden, () => hidden.listen(`\0${abstract}`))) closers.push(() => hidden.close());

  return {
    port,
    address: ADDRESS,
    own,
    abstract,
    certificate: authority.certificate,
    word: () => `w${randomBytes(9).toString('hex')}`,
    saw: (text) => seen.some((one) => one.includes(text)),
    arrivals: () => arrivals,
    async close() {
      for (const socket of sockets) socket.destroy();
      for (const close of closers) close();
    },
  };
}

/** Resolves whether it could be bound. Errors after that are dropped. */
function bound(server: Server | UdpSocket, bind: () => void): Promise<boolean> {
  return new Promise((resolve) => {
    server.on('error', () => resolve(false));
    server.once('listening', () => resolve(true));
    bind();
  });
}

/** Finds out by the first bytes what a connection speaks. */
function allProtocols(authority: Authority, note: (text: string) => void): (socket: Socket) => void {
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const { method, url, headers, httpVersion } = request;
    note(`http ${httpVersion} ${method} ${url} ${JSON.stringify(headers)}`);
    request.setEncoding('latin1');
    request.on('data', (chunk: string) => note(`body ${chunk}`));
    request.on('error', () => {});
    if (url?.startsWith('/bomb')) {
      bomb ??= gzipSync(Buffer.alloc(16 * 1024 * 1024));
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': bomb.length });
      return void response.end(bomb);
    }
    response.end(`target ${httpVersion} ${headers.host ?? ''} ${url}`);
  };
  const http = createHttp(
    { insecureHTTPParser: true, requireHostHeader: false, keepAliveTimeout: 60_000 },
    answer,
  );
  http.on('connect', (request, socket) => {
    note(`http connect ${request.url}`);
    socket.end('HTTP/1.1 200 OK\r\n\r\n');
  });
  http.on('clientError', (_error, socket) => socket.destroy());
  const http2 = createHttp2({}, (request, response) => {
    note(`http 2 ${request.method} ${request.url} ${JSON.stringify(request.headers)}`);
    response.end(`target 2 ${request.authority} ${request.url}`);
  });
  http2.on('sessionError', () => {});
  const tls = createTls({
    ALPNProtocols: ['h2', 'http/1.1'],
    SNICallback(name, done) {
      note(`sni ${name}`);
      done(null, authority.contextFor(name));
    },
  });
  tls.on('tlsClientError', () => {});
  tls.on('secureConnection', (socket) => {
    socket.on('error', () => {});
    (socket.alpnProtocol === 'h2' ? http2 : http).emit('connection', socket);
  });
  return (socket) => {
    socket.once('data', (first: Buffer) => {
      note(`raw ${first.toString('latin1')}`);
      socket.pause();
      const text = first.subarray(0, 8).toString('latin1');
      if (first[0] === 0x16) {
        socket.unshift(first);
        tls.emit('connection', socket);
      } else if (/^[A-Z]{3,8} /.test(text) && !text.startsWith('RAW ')) {
        socket.unshift(first);
        (text.startsWith('PRI ') ? http2 : http).emit('connection', socket);
        // HTTP/1 waits for a socket that is paused.
        if (!text.startsWith('PRI ')) socket.resume();
      } else {
        const echo = (chunk: Buffer) => {
          if (chunk !== first) note(`raw ${chunk.toString('latin1')}`);
          socket.write(`echo ${chunk.toString('latin1')}`);
        };
        socket.on('data', echo);
        socket.on('end', () => socket.end());
        echo(first);
        socket.resume();
      }
    });
  };
}
