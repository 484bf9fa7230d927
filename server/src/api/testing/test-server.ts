/** A whole server over real HTTP, with the memory backend behind it, and keys of two projects. */
import { createServer, type RequestListener } from 'node:http';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CreateSandboxInput, Sandbox } from '@cay/sdk/protocol';
import { pino } from 'pino';
import { WebSocketServer } from 'ws';
import { memoryBackend, type MemoryBackend } from '../../backends/memory/memory.ts';
import type { Incoming, Program } from '../../backends/memory/program.ts';
import { serve, type RunningServer, type ServeOptions } from '../../serve.ts';
import { connectionStream } from '../../guest/connection-stream.ts';

export interface Reply {
  status: number;
  headers: Headers;
  text: string;
  // Tests look into answers of every shape.
  // oxlint-disable-next-line typescript/no-explicit-any
  json: any;
}

export interface CallOptions {
  body?: unknown;
  headers?: Record<string, string>;
  key?: string | null;
}

export interface TestServer extends AsyncDisposable {
  server: RunningServer;
  backend: MemoryBackend;
  dataDir: string;
  /** An admin of project `default`. */
  admin: string;
  /** Members of two other projects. */
  alice: string;
  bob: string;
  /** With Alice's key unless told otherwise; `null` sends none. */
  call(method: string, path: string, options?: CallOptions): Promise<Reply>;
  create(input?: CreateSandboxInput, key?: string): Promise<Sandbox>;
  fetch(path: string, init?: RequestInit & { key?: string }): Promise<Response>;
}

export async function startTestServer(
  options: Partial<ServeOptions> & { commands?: Record<string, Program> } = {},
): Promise<TestServer> {
  const { commands, ...serveOptions } = options;
  const dataDir = mkdtempSync(join(tmpdir(), 'cay-api-'));
  const backend = memoryBackend({
    commands: { ...TEST_PROGRAMS, ...commands },
    egress: options.egress?.engine,
  });
  const server = await serve({ backend, dataDir, port: 0, log: pino({ level: 'silent' }), ...serveOptions });
  const admin = server.adminKey!;
  const test = {
    server,
    backend,
    dataDir,
    admin,
    alice: '',
    bob: '',
    async call(method, path, { body, headers = {}, key = test.alice } = {}) {
      const raw = body === undefined || typeof body === 'string' || body instanceof Uint8Array;
      const response = await fetch(server.url + path, {
        method,
        redirect: 'manual',
        headers: { ...(key !== null && { authorization: `Bearer ${key}` }), ...headers },
        ...(body !== undefined && { body: raw ? (body as string) : JSON.stringify(body) }),
      });
      const text = await response.text();
      return { status: response.status, headers: response.headers, text, json: parse(text) };
    },
    async create(input = {}, key = test.alice) {
      const { status, json, text } = await test.call('POST', '/v1/sandboxes', { body: input, key });
      if (status !== 201) throw new Error(`create answered ${status}: ${text}`);
      return json as Sandbox;
    },
    fetch: (path, { key = test.alice, ...init } = {}) =>
      fetch(server.url + path, {
        ...init,
        headers: { authorization: `Bearer ${key}`, ...(init.headers as Record<string, string>) },
      }),
    async [Symbol.asyncDispose]() {
      await server.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  } as TestServer;
  for (const name of ['alice', 'bob'] as const) {
    await test.call('POST', '/v1/projects', { body: { name }, key: admin });
    test[name] = (
      await test.call('POST', '/v1/keys', { body: { name, project: name }, key: admin })
    ).json.secret;
  }
  return test;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What an application saw of the last request, for tests of what must not get through. */
const showRequest: RequestListener = (request, response) => {
  let body = '';
  request.on('data', (data: Buffer) => (body += data.toString()));
  request.on('end', () => {
    response.setHeader('Set-Cookie', ['session=1; Domain=localhost; Path=/', 'cay_preview=stolen']);
    response.setHeader('Content-Type', 'application/json');
    response.end(
      JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body }),
    );
  });
};

async function serveConnection(incoming: Incoming, listener: RequestListener): Promise<void> {
  const server = createServer(listener);
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket) =>
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
  );
  const stream = connectionStream({
    readable: incoming.readable,
    write: (data) => incoming.write(data),
    end: () => incoming.end(),
    [Symbol.asyncDispose]: () => incoming.end(),
  });
  const closed = new Promise<void>((resolve) => stream.once('close', resolve));
  server.emit('connection', stream);
  await closed;
}

const until = (signal: AbortSignal) =>
  new Promise<number>((resolve) => signal.addEventListener('abort', () => resolve(0), { once: true }));

const TEST_PROGRAMS: Record<string, Program> = {
  'http-server': ({ argv, listen, signal }) => {
    listen(Number(argv[1]), (incoming) => serveConnection(incoming, showRequest));
    return until(signal);
  },
  /** Answers as soon as a request begins, and reads nothing of its body. */
  'early-server': ({ argv, listen, signal }) => {
    listen(Number(argv[1]), async (incoming) => {
      for await (const _ of incoming.readable) break;
      await incoming.write(Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
      await incoming.end();
    });
    return until(signal);
  },
  'tcp-echo': ({ argv, listen, signal }) => {
    listen(Number(argv[1]), async (incoming) => {
      for await (const data of incoming.readable) await incoming.write(data);
    });
    return until(signal);
  },
  /** Writes bytes one at a time, given in hex as `o:c3` (stdout) or `e:a9` (stderr). */
  bytes: async ({ argv, stdout, stderr }) => {
    for (const argument of argv.slice(1))
      await (argument.startsWith('e') ? stderr : stdout).write(Buffer.from(argument.slice(2), 'hex'));
    return 0;
  },
  flood: async ({ argv, stdout }) => {
    const chunk = new Uint8Array(65_536).fill(120);
    for (let left = Number(argv[1]); left > 0; left -= chunk.length)
      await stdout.write(chunk.subarray(0, Math.min(chunk.length, left)));
    return 0;
  },
};
