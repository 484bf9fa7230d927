/**
 * Registries on loopback that stand for those of the internet: a PyPI index, an npm registry, an apt
 * repository, a registry of cargo, a proxy of Go modules and git over HTTPS, each with a real package. Each
 * asks for a credential: basic authentication, or a token.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Authority } from '../../server/src/egress/tls/authority.ts';
import { makeCrate } from './make-crate.ts';
import { makeDebian } from './make-debian.ts';
import { makeModule } from './make-module.ts';

export interface Registries extends Disposable {
  /** The port of all of them. */
  readonly port: number;
  /** The credentials of requests that were served, by name. */
  readonly seen: Map<string, Set<string>>;
}

/** What each name asks for in `Authorization`. */
export const CREDENTIALS = {
  'pypi.example.org': `Basic ${Buffer.from('robot:value-of-pypi').toString('base64')}`,
  'npm.example.org': 'Bearer value-of-npm',
  'deb.example.org': `Basic ${Buffer.from('robot:value-of-deb').toString('base64')}`,
  'crates.example.org': 'value-of-crates',
  'go.example.org': `Basic ${Buffer.from('robot:value-of-go').toString('base64')}`,
  'git.example.org': `Basic ${Buffer.from('x-access-token:value-of-git').toString('base64')}`,
} as const;
type Name = keyof typeof CREDENTIALS;

export async function openRegistries(dir: string, authority: Authority): Promise<Registries> {
  const wheel = makeWheel(dir);
  const tarball = makeTarball(dir);
  const repositories = makeRepository(dir);
  const debian = makeDebian(dir);
  const crate = makeCrate(dir);
  const module = makeModule(dir);
  const seen = new Map<string, Set<string>>();
  let port = 0;

  function answer(name: Name, request: IncomingMessage, response: ServerResponse): void {
    const path = new URL(request.url!, 'https://x').pathname;
    if (name === 'git.example.org') return gitBackend(repositories, request, response);
    const files: Partial<Record<Name, () => Buffer | undefined>> = {
      'deb.example.org': () => debian.get(path),
      'go.example.org': () => module.get(path),
      'crates.example.org': () => crate(path, `https://crates.example.org:${port}`),
    };
    const find = files[name];
    if (find) {
      const file = find();
      return void (file ? response.end(file) : response.writeHead(404).end());
    }
    if (name === 'pypi.example.org') {
      if (path === '/simple/demo-pkg/')
        response.setHeader('content-type', 'text/html').end(`<a href="/${WHEEL}">${WHEEL}</a>`);
      else if (path === `/${WHEEL}`) response.end(wheel);
      else response.writeHead(404).end();
      return;
    }
    if (path === '/demo-pkg/-/demo-pkg-1.0.0.tgz') return void response.end(tarball);
    const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`;
    const dist = { tarball: `https://npm.example.org:${port}/demo-pkg/-/demo-pkg-1.0.0.tgz`, integrity };
    const version = { name: 'demo-pkg', version: '1.0.0', dist };
    if (path !== '/demo-pkg') return void response.writeHead(404).end('{}');
    response.setHeader('content-type', 'application/json').end(
      JSON.stringify({
        name: 'demo-pkg',
        'dist-tags': { latest: '1.0.0' },
        versions: { '1.0.0': version },
      }),
    );
  }

  const server = createServer(
    { SNICallback: (name, done) => done(null, authority.contextFor(name)) },
    (request, response) => {
      const name = request.headers.host!.split(':')[0] as Name;
      const given = request.headers.authorization ?? '';
      if (given !== CREDENTIALS[name]) {
        response.writeHead(401, { 'www-authenticate': 'Basic realm="test"' }).end('who are you?\n');
        return;
      }
      if (!seen.has(name)) seen.set(name, new Set());
      seen.get(name)!.add(given);
      answer(name, request, response);
    },
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
  return {
    port,
    seen,
    [Symbol.dispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const WHEEL = 'demo_pkg-1.0.0-py3-none-any.whl';

function makeWheel(dir: string): Buffer {
  const script = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    z.writestr('demo_pkg.py', "print('the package of pip')\\n")
    z.writestr('demo_pkg-1.0.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: demo-pkg\\nVersion: 1.0.0\\n')
    z.writestr('demo_pkg-1.0.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('demo_pkg-1.0.0.dist-info/RECORD', '')
`;
  const path = join(dir, WHEEL);
  execFileSync('python3', ['-c', script, path]);
  return readFileSync(path);
}

function makeTarball(dir: string): Buffer {
  const root = join(dir, 'npm-package', 'package');
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, 'package.json'), JSON.stringify({ name: 'demo-pkg', version: '1.0.0' }));
  writeFileSync(join(root, 'index.js'), "console.log('the package of npm');\n");
  const path = join(dir, 'demo-pkg-1.0.0.tgz');
  execFileSync('tar', ['-czf', path, '-C', join(dir, 'npm-package'), 'package']);
  return readFileSync(path);
}

/** A bare repository that can be pushed to. Answers the directory that it is in. */
export function makeRepository(dir: string): string {
  const root = join(dir, 'repositories');
  const git = (...args: string[]) => execFileSync('git', args, { stdio: 'ignore' });
  const work = join(dir, 'repository-work');
  git('init', '--initial-branch=main', work);
  writeFileSync(join(work, 'hello.txt'), 'the repository of git\n');
  git('-C', work, 'add', 'hello.txt');
  git('-C', work, '-c', 'user.name=test', '-c', 'user.email=test@example.org', 'commit', '-m', 'first');
  mkdirSync(root);
  git('clone', '--bare', work, join(root, 'demo.git'));
  git('-C', join(root, 'demo.git'), 'config', 'http.receivepack', 'true');
  return root;
}

/** Git's own CGI program. */
function gitBackend(root: string, request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url!, 'https://x');
  const child = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env['PATH'],
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      // The repository may be owned by another user than root's.
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'safe.directory',
      GIT_CONFIG_VALUE_0: '*',
      REMOTE_USER: 'robot',
      REQUEST_METHOD: request.method,
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
      HTTP_GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
    },
  });
  request.pipe(child.stdin);
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.on('close', () => {
    const all = Buffer.concat(chunks);
    const end = all.indexOf('\r\n\r\n');
    for (const line of all.subarray(0, end).toString().split('\r\n')) {
      const [name = '', value = ''] = line.split(': ');
      if (name === 'Status') response.statusCode = Number.parseInt(value, 10);
      else response.setHeader(name, value);
    }
    response.end(all.subarray(end + 4));
  });
}
