/** Servers on loopback that stand for the network outside, and what a sandbox may reach of them. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { execFileSync } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createWeb, type RequestListener } from 'node:http';
import { createServer as createSecureWeb } from 'node:https';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, normalize } from 'node:path';
import { Readable } from 'node:stream';
import { testEgress, type TestEgress } from '../../server/src/guest/testing/test-egress.ts';

export interface EgressWorld {
  readonly egress: TestEgress;
  /** The certificate of `secure.test`, for clients that check it. */
  readonly certificate: string;
  close(): Promise<void>;
}

/** What the big download has, by its number of megabytes. */
const MEGABYTE = Buffer.alloc(1 << 20, 'The same megabyte again and again. ');

/**
 * Names: `web.test` (HTTP on 80 and 8080), `secure.test` (HTTPS), `git.test` (a repository over HTTP),
 * `echo.test:7`, `sink.test:9` (answers with the checksum of what it read), `source.test:19` (sends as many
 * megabytes as it is told), `silent.test:1` (never says anything), `dead.test:1` (does not answer), and the
 * address 192.0.2.80 on port 80.
 */
export async function egressWorld(): Promise<EgressWorld> {
  const dir = await mkdtemp(join(tmpdir(), 'cay-egress-'));
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  const listen = async (server: Server) => {
    servers.push(server);
    server.on('connection', (socket: Socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    });
    server.listen({ port: 0, host: '127.0.0.1', backlog: 1024 });
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };

  const hello: RequestListener = (request, response) =>
    response.end(`hello ${request.headers.host}${request.url}`);
  const web = await listen(createWeb(hello));
  const certificate = makeCertificate(dir);
  const secure = await listen(createSecureWeb(certificate, hello));
  makeRepository(dir);
  const git = await listen(createWeb(serveFiles(join(dir, 'repository.git'))));
  const echo = await listen(createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket)));
  const sink = await listen(
    createServer({ allowHalfOpen: true }, (socket) => {
      const hash = createHash('sha256');
      socket.on('data', (chunk) => hash.update(chunk));
      socket.on('end', () => socket.end(hash.digest('hex')));
    }),
  );
  const source = await listen(
    createServer({ allowHalfOpen: true }, (socket) => {
      socket.once('data', (asked: Buffer) => {
        Readable.from(Array.from({ length: Number(asked.toString()) }, () => MEGABYTE)).pipe(socket);
      });
    }),
  );
  const silent = await listen(createServer(() => {}));
  const dead = await listen(createServer());
  servers.pop()?.close();

  const egress = testEgress({
    'web.test:80': web,
    'web.test:443': web,
    'web.test:8080': web,
    'secure.test:443': secure,
    'git.test:80': git,
    'echo.test:7': echo,
    'sink.test:9': sink,
    'source.test:19': source,
    'silent.test:1': silent,
    'dead.test:1': dead,
    '192.0.2.80:80': web,
  });
  return {
    egress,
    certificate: certificate.cert,
    async close() {
      for (const server of servers) server.close();
      for (const socket of sockets) socket.destroy();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** The checksum of so many megabytes of `source.test`. */
export function sourceChecksum(megabytes: number): string {
  const hash = createHash('sha256');
  for (let left = megabytes; left > 0; left--) hash.update(MEGABYTE);
  return hash.digest('hex');
}

function makeCertificate(dir: string): { key: string; cert: string } {
  const [key, cert] = [join(dir, 'key.pem'), join(dir, 'cert.pem')];
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-keyout', key, '-out', cert],
      ...['-subj', '/CN=secure.test', '-addext', 'subjectAltName=DNS:secure.test'],
    ],
    { stdio: 'ignore' },
  );
  const read = (path: string) => execFileSync('cat', [path], { encoding: 'utf8' });
  return { key: read(key), cert: read(cert) };
}

function makeRepository(dir: string): void {
  const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null' };
  const git = (...args: string[]) => execFileSync('git', args, { cwd: dir, stdio: 'ignore', env });
  const identity = ['-c', 'user.name=a', '-c', 'user.email=a@a.test'];
  git('init', '-q', 'work');
  git('-C', 'work', ...identity, 'commit', '-q', '--allow-empty', '-m', 'the first commit');
  git('clone', '-q', '--bare', 'work', 'repository.git');
  git('-C', 'repository.git', 'update-server-info');
}

function serveFiles(root: string): RequestListener {
  return (request, response) => {
    const path = join(root, normalize(`/${request.url?.split('?')[0]?.replace('/repository.git', '')}`));
    createReadStream(path)
      .on('error', () => response.writeHead(404).end())
      .pipe(response);
  };
}
