/**
 * `fetch` over `node:http`, as far as the client needs it. The built-in one takes some 40 ms to load, which
 * is more than everything else that a short command does.
 */
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';

interface Init {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array | ReadableStream<Uint8Array>;
  signal?: AbortSignal;
}

/** An `import` of these would touch every export, and one of `node:http`'s is all of the built-in `fetch`. */
const builtin = (secure: boolean) => process.getBuiltinModule(secure ? 'node:https' : 'node:http');

export async function httpFetch(
  url: string,
  { method = 'GET', headers = {}, body, signal }: Init = {},
): Promise<Response> {
  signal?.throwIfAborted();
  const { request, Agent } = builtin(url.startsWith('https:'));
  const options: RequestOptions = {
    method,
    headers: withLength(headers, body),
    agent: agentFor(url, Agent),
    signal,
  };
  const sent = request(url, options);
  const answer = new Promise<IncomingMessage>((resolve, reject) =>
    sent.on('response', resolve).on('error', (cause) => reject(wrapped(cause))),
  );
  await Promise.race([answer, send(sent, body)]);
  // The client uses no other part of a Response than these.
  return responseOf(await answer) as Response;
}

const agents = new Map<string, unknown>();

/** One connection stays open for the next request of the same command. */
function agentFor(url: string, Agent: ReturnType<typeof builtin>['Agent']): InstanceType<typeof Agent> {
  const scheme = url.slice(0, url.indexOf(':'));
  if (!agents.has(scheme)) agents.set(scheme, new Agent({ keepAlive: true }));
  return agents.get(scheme) as InstanceType<typeof Agent>;
}

function withLength(headers: Record<string, string>, body: Init['body']): Record<string, string> {
  // Asking for ReadableStream itself would load it.
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return headers;
  return { ...headers, 'content-length': String(Buffer.byteLength(body)) };
}

async function send(request: ClientRequest, body: Init['body']): Promise<void> {
  if (body === undefined || typeof body === 'string' || body instanceof Uint8Array) {
    request.end(body);
    return;
  }
  try {
    for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
      if (request.destroyed) return;
      if (request.write(chunk)) continue;
      await drained(request);
    }
    request.end();
  } catch (error) {
    request.destroy(error as Error);
    throw error;
  }
}

function drained(request: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      request.off('drain', done).off('close', done);
      resolve();
    };
    request.on('drain', done).on('close', done);
  });
}

/** As the built-in one has it: the reason is the cause. */
function wrapped(cause: Error): Error {
  return new TypeError('fetch failed', { cause });
}

function responseOf(message: IncomingMessage): Partial<Response> {
  const status = message.statusCode ?? 0;
  const all = async () => {
    const chunks: Buffer[] = [];
    for await (const chunk of message as AsyncIterable<Buffer>) chunks.push(chunk);
    return Buffer.concat(chunks);
  };
  const text = async () => (await all()).toString();
  return {
    status,
    ok: status >= 200 && status < 300,
    text,
    json: async () => JSON.parse(await text()) as unknown,
    async arrayBuffer() {
      const bytes = await all();
      return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
    },
    get body() {
      const chunks = (message as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
      const reader = {
        read: () => chunks.next(),
        cancel: async () => void message.destroy(),
      };
      // Only a reader is ever taken from it.
      return { getReader: () => reader } as unknown as Response['body'];
    },
  };
}
