/**
 * As much of `fetch` as the client uses, on Node's own HTTP. Node's `fetch` costs every verb 30 ms to load,
 * turns every chunk of a body into web streams and back, and gives up after five minutes without an answer. A
 * server may need longer: it pulls an image first, or packs a large memory image.
 */
import type { Agent, ClientRequest, IncomingMessage } from 'node:http';
import type { RequestOptions } from 'node:https';
import { giveBack, lend } from '../../lib/lent-memory.ts';
import { trusting } from './trusting.ts';

type Body = string | Uint8Array | AsyncIterable<Uint8Array> | null | undefined;

interface Init {
  method?: string;
  headers?: Record<string, string>;
  body?: Body;
  signal?: AbortSignal | null;
}

/** Pieces of an upload are large, so that few of them are enough to keep the connection busy. */
const BUFFER_BYTES = 4 * 1024 * 1024;

// An `import` of it reads all that it exports, and so loads Node's `fetch` as well.
const http = process.getBuiltinModule('node:http');

type Make = (url: URL, options: RequestOptions) => ClientRequest;
let plain: { agent: Agent; make: Make } | undefined;
/** By the file of the certificate that is trusted. */
const secure = new Map<string | undefined, { agent: Agent; make: Make }>();

/** Connections are kept: most verbs make several requests. */
async function maker({ protocol }: URL, certificate?: string): Promise<{ agent: Agent; make: Make }> {
  const options = { keepAlive: true, highWaterMark: BUFFER_BYTES };
  if (protocol !== 'https:') return (plain ??= { agent: new http.Agent(options), make: http.request });
  // Few speak TLS to the server of their machine, and loading it takes long.
  const https = await import('node:https');
  let made = secure.get(certificate);
  if (!made) {
    made = { agent: new https.Agent({ ...options, ...trusting(certificate) }), make: https.request };
    secure.set(certificate, made);
  }
  return made;
}

/** Rejects as `fetch` does: with the cause of a failed connection as `cause`. */
export async function nodeFetch(address: string, init: Init = {}, certificate?: string): Promise<Response> {
  const { method = 'GET', headers = {}, body, signal } = init;
  const { agent, make } = await maker(new URL(address), certificate);
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    const request = make(new URL(address), {
      method,
      headers: { ...headers },
      agent,
      signal: signal ?? undefined,
    });
    try {
      return responseOf(await answerOf(request, body));
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      // A connection that was kept may have been closed by the server at this very moment. What changes
      // something is not sent again: it may have been done.
      const stale = request.reusedSocket && (error as NodeJS.ErrnoException).code === 'ECONNRESET';
      if (stale && attempt === 0 && method === 'GET') continue;
      throw new TypeError('fetch failed', { cause: error });
    }
  }
}

function answerOf(request: ClientRequest, body: Body): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request.on('response', resolve);
  request.on('error', reject);
  if (typeof body !== 'object' || body === null || body instanceof Uint8Array) request.end(body ?? undefined);
  else sendAll(request, body).catch((error: unknown) => request.destroy(error as Error));
  return promise;
}

/**
 * Stops when the server has refused it before it had all. An answer that tells of progress begins early too.
 */
async function sendAll(request: ClientRequest, body: AsyncIterable<Uint8Array>): Promise<void> {
  let over = false;
  let wake: (() => void) | undefined;
  const end = () => {
    over = true;
    wake?.();
  };
  request
    .on('drain', () => wake?.())
    .on('close', end)
    .on('response', ({ statusCode = 0 }: IncomingMessage) => {
      if (statusCode >= 300) end();
    });
  for await (const chunk of body) {
    if (over) break;
    if (!request.write(chunk, (error) => error ?? giveBack(chunk)))
      await new Promise<void>((resolve) => (wake = resolve));
  }
  if (!request.destroyed) request.end();
}

function responseOf(answer: IncomingMessage): Response {
  const status = answer.statusCode ?? 0;
  answer.on('error', () => {});
  // Nobody reads an answer without a body, and its connection is to be used again.
  if (status === 204) answer.resume();
  const bytes = async () => {
    const parts: Buffer[] = [];
    for await (const part of answer) parts.push(part as Buffer);
    return Buffer.concat(parts);
  };
  const text = async () => (await bytes()).toString();
  const response: Pick<Response, 'status' | 'ok' | 'text' | 'json' | 'arrayBuffer'> & {
    headers: Pick<Headers, 'get'>;
    body: { getReader(): Reader };
  } = {
    status,
    ok: status >= 200 && status < 300,
    headers: { get: (name) => String(answer.headers[name.toLowerCase()] ?? '') || null },
    text,
    json: async () => JSON.parse(await text()) as unknown,
    arrayBuffer: async () => {
      const all = await bytes();
      return all.buffer.slice(all.byteOffset, all.byteOffset + all.byteLength) as ArrayBuffer;
    },
    body: { getReader: () => readerOf(answer) },
  };
  // What the client uses of a response is all there.
  return response as unknown as Response;
}

interface Reader {
  read(): Promise<{ done: boolean; value?: Uint8Array }>;
  cancel(): Promise<void>;
}

/** Chunks that wait for the reader before the server is slowed down. */
const MOST_WAITING = 16;

/**
 * Takes chunks from events: reading the stream would join those that wait, which copies every byte once more.
 */
function readerOf(answer: IncomingMessage): Reader {
  const waiting: Buffer[] = [];
  let ended = false;
  let failure: Error | undefined;
  let wake: (() => void) | undefined;
  answer
    .on('data', (chunk: Buffer) => {
      waiting.push(chunk);
      if (waiting.length >= MOST_WAITING) answer.pause();
      wake?.();
    })
    .on('end', () => {
      ended = true;
      wake?.();
    })
    .on('error', (error) => {
      failure ??= error;
      wake?.();
    })
    .on('close', () => {
      if (!ended) failure ??= new Error('The connection was closed before all of the answer had arrived');
      wake?.();
    });
  return {
    async read() {
      for (;;) {
        const value = waiting.shift();
        if (value) {
          if (waiting.length === 0 && answer.isPaused()) answer.resume();
          lend(value);
          return { done: false, value };
        }
        if (failure) throw failure;
        if (ended) return { done: true };
        await new Promise<void>((resolve) => (wake = resolve));
      }
    },
    async cancel() {
      if (!ended) answer.destroy();
    },
  };
}
