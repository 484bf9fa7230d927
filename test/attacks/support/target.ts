/**
 * The target of an attack: a real `cay up` process on a data directory of its own, with two tenants (`alice`,
 * `bob`) and an admin. `stranger` sends requests without a key. On Docker the target has its own engine.
 *
 * The server runs as its own process, so that a case can tell "the request was refused" from "the server died
 * and came back".
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Ability, Capabilities, CreateSandboxInput, Sandbox } from '@cay/sdk/protocol';
import { startDockerd, type Dockerd } from '../../support/dockerd.ts';

const MAIN = join(import.meta.dirname, '../../../server/src/main.ts');
const START_MS = 60_000;
const ALIVE_MS = 2_000;
/** What the template `base` is on Docker. */
export const DOCKER_IMAGE = 'own-base';

export interface TargetOptions {
  backend: 'memory' | 'local' | 'docker';
  /** The isolation of sandboxes that ask for none. */
  runtime?: 'runsc' | 'runc';
  /** More flags of `cay up`. */
  flags?: readonly string[];
  env?: Record<string, string>;
  /** A program, with arguments, that becomes the server that it is given as more arguments. */
  through?: readonly string[];
  /**
   * On Docker: keeps the engine's data on a filesystem of that size that can limit the disk of a container.
   */
  dockerDiskBytes?: number;
}

export interface Reply {
  status: number;
  headers: Headers;
  text: string;
  // Attacks look into answers of every shape.
  // oxlint-disable-next-line typescript/no-explicit-any
  json: any;
}

export interface RequestOptions {
  /** An object is sent as JSON; text and bytes as they are. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export interface Tenant {
  readonly name: string;
  readonly key: string;
  readonly project: string;
  call(method: string, path: string, options?: RequestOptions): Promise<Reply>;
  /** Rejects unless it was created. */
  create(input?: CreateSandboxInput): Promise<Sandbox>;
  /**
   * Runs a command to its end and gives `{ stdout, stderr, exitCode, … }`. Rejects unless the answer is 200.
   */
  exec(
    sandbox: string,
    argv: string[],
    options?: Record<string, unknown>,
  ): Promise<{ stdout: string; stderr: string; exitCode: number }>;
}

export interface Target extends AsyncDisposable {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly dataDir: string;
  readonly admin: Tenant;
  readonly alice: Tenant;
  readonly bob: Tenant;
  /** A call without any credentials. */
  stranger(method: string, path: string, options?: RequestOptions): Promise<Reply>;
  /**
   * Sends these bytes on a new connection and gives what comes back until it is closed, or until the time is
   * up.
   */
  raw(bytes: string | Uint8Array, options?: { timeoutMs?: number }): Promise<Buffer>;
  /** Rejects unless the process that was started still answers `/healthz` within two seconds. */
  requireAlive(): Promise<void>;
  /** Resident memory of the server. */
  rssBytes(): number;
  /** All that the server has logged so far. */
  log(): string;
  readonly pid: number;
  /** What the server says it can do, and why not. */
  readonly capabilities: Capabilities;
  /** Why the backend lacks an ability, in its own words, or `undefined` if it has it. */
  lacks(ability: Ability): string | undefined;
  /** The engine whose containers the sandboxes are. */
  readonly docker: Dockerd | undefined;
  /** Ends the server as an operator does, and starts it again on the same data and port. */
  restart(): Promise<void>;
}

export async function startTarget(options: TargetOptions): Promise<Target> {
  if (options.backend !== 'docker') return startServer(options);
  const docker = await startDockerd(
    options.dockerDiskBytes === undefined ? {} : { btrfsBytes: options.dockerDiskBytes },
  );
  try {
    await docker.importBaseImage(DOCKER_IMAGE);
    return await startServer(options, docker);
  } catch (error) {
    await docker.stop();
    throw error;
  }
}

async function startServer(
  { backend, runtime, flags = [], env = {}, through = [] }: TargetOptions,
  docker?: Dockerd,
): Promise<Target> {
  const dataDir = await mkdtemp('/tmp/cay-attack-');
  const { CAY_URL: _url, CAY_API_KEY: _key, ...inherited } = process.env;
  const all: NodeJS.ProcessEnv = {
    ...inherited,
    CAY_DATA: dataDir,
    CAY_LISTEN: '127.0.0.1:0',
    CAY_POOL: '0',
    NO_COLOR: '1',
    ...env,
  };
  const args = [
    'up',
    '--backend',
    backend,
    '--log-level',
    'info',
    ...(runtime === undefined ? [] : ['--runtime', runtime]),
    ...(docker === undefined ? [] : ['--docker-host', docker.host, '--docker-image', DOCKER_IMAGE]),
    ...flags,
  ];
  let words = '';
  const launch = (listen: string): ChildProcess => {
    const [program, ...rest] = [...through, process.execPath, MAIN, ...args] as [string, ...string[]];
    const launched = spawn(program, rest, {
      env: { ...all, CAY_LISTEN: listen },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [launched.stdout, launched.stderr])
      stream.on('data', (chunk: Buffer) => (words += chunk.toString()));
    return launched;
  };
  let child = launch(all['CAY_LISTEN']!);
  const cleanUp = async () => {
    await ended(child, 'SIGTERM');
    await destroyed(all);
    await rm(dataDir, { recursive: true, force: true });
  };
  const { url, key } = await started(child, dataDir, () => words).catch(async (error: unknown) => {
    await cleanUp();
    throw error;
  });
  const { hostname, port } = new URL(url);

  const admin = tenantOf(url, 'admin', 'default', key);
  const tenant = async (name: string): Promise<Tenant> => {
    const project = await admin.call('POST', '/v1/projects', { body: { name } });
    const made = await admin.call('POST', '/v1/keys', { body: { name, project: name } });
    if (made.status >= 300) throw new Error(`No key for ${name}: ${project.text} ${made.text}`);
    return tenantOf(url, name, project.json.id, made.json.secret);
  };
  const capabilities = (await admin.call('GET', '/v1/capabilities')).json as Capabilities;
  return {
    url,
    host: hostname,
    port: Number(port),
    dataDir,
    get pid() {
      return child.pid!;
    },
    docker,
    capabilities,
    lacks: (ability) =>
      capabilities.abilities[ability]
        ? undefined
        : (capabilities.notes[ability] ?? `${capabilities.backend} has no "${ability}"`),
    admin,
    alice: await tenant('alice'),
    bob: await tenant('bob'),
    stranger: (method, path, request) => send(url, method, path, request),
    raw: (bytes, request) => rawExchange(hostname, Number(port), bytes, request),
    async requireAlive() {
      if (child.exitCode !== null || child.signalCode !== null) {
        throw new Error(
          `The server has ended (${child.exitCode ?? child.signalCode}): ${words.slice(-4000)}`,
        );
      }
      const { status } = await send(url, 'GET', '/healthz', { signal: AbortSignal.timeout(ALIVE_MS) });
      if (status !== 200) throw new Error(`/healthz answered ${status}`);
    },
    rssBytes: () =>
      Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? 0) * 1024,
    log: () => words,
    async restart() {
      await ended(child, 'SIGTERM');
      await rm(join(dataDir, 'server.json'), { force: true });
      child = launch(`${hostname}:${port}`);
      await started(child, dataDir, () => words);
    },
    async [Symbol.asyncDispose]() {
      await cleanUp();
      await docker?.stop();
    },
  };
}

async function started(
  child: ChildProcess,
  dataDir: string,
  words: () => string,
): Promise<{ url: string; key: string }> {
  for (
    const deadline = Date.now() + START_MS;
    Date.now() < deadline && child.exitCode === null;
    await sleep(20)
  ) {
    const file = await readFile(join(dataDir, 'server.json'), 'utf8').catch(() => undefined);
    if (file === undefined) continue;
    const { url } = JSON.parse(file) as { url: string };
    const { key } = JSON.parse(await readFile(join(dataDir, 'cli.json'), 'utf8')) as { key: string };
    return { url, key };
  }
  child.kill('SIGKILL');
  throw new Error(`The server did not start: ${words()}`);
}

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), 30_000);
  await gone;
  clearTimeout(timer);
}

/** Removes every sandbox, mount and cgroup of the data directory. */
async function destroyed(env: NodeJS.ProcessEnv): Promise<void> {
  const down = spawn(process.execPath, [MAIN, 'down', '--destroy', '--yes'], { env, stdio: 'ignore' });
  await new Promise((resolve) => down.once('exit', resolve));
}

function tenantOf(url: string, name: string, project: string, key: string): Tenant {
  const call: Tenant['call'] = (method, path, { headers, ...rest } = {}) =>
    send(url, method, path, { ...rest, headers: { authorization: `Bearer ${key}`, ...headers } });
  return {
    name,
    key,
    project,
    call,
    async create(input = {}) {
      const { status, json, text } = await call('POST', '/v1/sandboxes', { body: input });
      if (status !== 201) throw new Error(`create answered ${status}: ${text}`);
      return json as Sandbox;
    },
    async exec(sandbox, argv, options = {}) {
      const { status, json, text } = await call('POST', `/v1/sandboxes/${sandbox}/exec`, {
        body: { argv, ...options },
      });
      if (status !== 200) throw new Error(`exec answered ${status}: ${text}`);
      return json as { stdout: string; stderr: string; exitCode: number };
    },
  };
}

async function send(
  url: string,
  method: string,
  path: string,
  { body, headers, signal }: RequestOptions = {},
): Promise<Reply> {
  const asIs = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
  const response = await fetch(url + path, {
    method,
    redirect: 'manual',
    headers: { ...(!asIs && { 'content-type': 'application/json' }), ...headers },
    ...(body !== undefined && { body: asIs ? (body as string) : JSON.stringify(body) }),
    ...(signal && { signal }),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: parsed(text) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function rawExchange(
  host: string,
  port: number,
  bytes: string | Uint8Array,
  { timeoutMs = 3_000 }: { timeoutMs?: number } = {},
): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect({ host, port }, () => socket.write(bytes));
    const done = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve(Buffer.concat(chunks));
    };
    const timer = setTimeout(done, timeoutMs);
    socket.on('data', (chunk) => chunks.push(chunk));
    // A connection that is reset is an answer too.
    socket.on('error', done).on('close', done);
  });
}
