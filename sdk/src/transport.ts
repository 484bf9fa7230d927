/**
 * How the client speaks to a server: `fetch` and `WebSocket` as every runtime has them, JSON
 * answers, lines of JSON for what streams, and one kind of error.
 */
import { CayError, isErrorCode, type WireError } from './protocol/error.ts';
import { systemReason } from './system-error.ts';

export interface ConnectOptions {
  /** Where the server is. Default: `CAY_URL`, else http://127.0.0.1:7070. */
  url?: string;
  /** The API key. Default: `CAY_API_KEY`. */
  apiKey?: string;
  /** For tests and special runtimes. */
  fetch?: typeof fetch;
  /** That `fetch` takes an async iterable as body. Default: it gets a `ReadableStream`, which costs more. */
  iterableBodies?: boolean;
  /** A WebSocket that can `pause` and `resume`, as the package "ws" has, bounds what a slow reader holds. */
  WebSocket?: new (url: string, protocols: string[]) => WebSocket;
}

type Body = NonNullable<RequestInit['body']>;

export interface RequestOptions {
  query?: Record<string, string | number | boolean | undefined | string[]>;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  body?: Body | AsyncIterable<Uint8Array>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export interface Transport {
  readonly url: string;
  request(method: string, path: string, options?: RequestOptions): Promise<Response>;
  json<T>(method: string, path: string, options?: RequestOptions): Promise<T>;
  /** Answers that go on, one value a line. Leaving the loop ends the request. */
  lines<T>(method: string, path: string, options?: RequestOptions): AsyncGenerator<T, void, undefined>;
  socket(
    path: string,
    options?: { query?: RequestOptions['query']; signal?: AbortSignal },
  ): Promise<WebSocket>;
}

export const DEFAULT_URL = 'http://127.0.0.1:7070';

export function connect(options: ConnectOptions = {}): Transport {
  const env = typeof process === 'undefined' ? {} : process.env;
  const url = (options.url ?? env['CAY_URL'] ?? DEFAULT_URL).replace(/\/+$/, '');
  const apiKey = options.apiKey ?? env['CAY_API_KEY'];
  const send = options.fetch ?? fetch;

  function target(path: string, query: RequestOptions['query'] = {}): string {
    const search = new URLSearchParams();
    for (const [key, value] of Object.entries(query)) {
      for (const one of [value].flat()) if (one !== undefined) search.append(key, String(one));
    }
    return `${url}${path}${search.size > 0 ? `?${search.toString()}` : ''}`;
  }

  const transport: Transport = {
    url,

    async request(method, path, { query, json, body, headers, signal } = {}) {
      let response: Response;
      try {
        response = await send(target(path, query), {
          method,
          headers: {
            ...(apiKey && { authorization: `Bearer ${apiKey}` }),
            ...(json !== undefined && { 'content-type': 'application/json' }),
            ...headers,
          },
          body: json !== undefined ? JSON.stringify(json) : options.iterableBodies ? body : toBody(body),
          signal,
          // Request bodies that stream need this in Node, and `fetch`'s types do not know it.
          ...(isIterable(body) && { duplex: 'half' }),
        } as RequestInit);
      } catch (cause) {
        if (signal?.aborted) throw new CayError('cancelled', 'The request was cancelled', { cause });
        throw new CayError('unavailable', `Cannot reach the server at ${url}: ${systemReason(cause)}`, {
          cause,
          details: { url },
          hint: 'start it with "cay up", or set CAY_URL',
        });
      }
      if (!response.ok) throw await errorOf(response);
      return response;
    },

    async json<T>(method: string, path: string, requestOptions?: RequestOptions) {
      const response = await transport.request(method, path, requestOptions);
      return (response.status === 202 || response.status === 204 ? undefined : await response.json()) as T;
    },

    async *lines<T>(method: string, path: string, requestOptions: RequestOptions = {}) {
      const abort = new AbortController();
      const signal = requestOptions.signal
        ? AbortSignal.any([requestOptions.signal, abort.signal])
        : abort.signal;
      const headers = { accept: 'application/x-ndjson', ...requestOptions.headers };
      const response = await transport.request(method, path, { ...requestOptions, headers, signal });
      try {
        for await (const line of splitLines(bytesOf(response))) {
          // An empty line is a sign of life; a value of type `error` is why the stream ends.
          if (line === '') continue;
          const value = JSON.parse(line) as T & { type?: string; error?: WireError };
          if (value.type === 'error' && isErrorCode(value.error?.code)) throw CayError.fromWire(value.error);
          yield value;
        }
      } catch (cause) {
        if (requestOptions.signal?.aborted)
          throw new CayError('cancelled', 'The request was cancelled', { cause });
        throw cause instanceof CayError
          ? cause
          : new CayError('unavailable', `The connection to ${url} was lost`, { cause });
      } finally {
        abort.abort();
      }
    },

    async socket(path, { query, signal } = {}) {
      const Socket = options.WebSocket ?? globalThis.WebSocket;
      if (Socket === undefined) {
        throw new CayError('unsupported', 'This runtime has no WebSocket, which terminals and streams need', {
          hint: 'use Node 22 or newer, or pass { WebSocket } of the package "ws"',
        });
      }
      const address = target(path, query).replace(/^http/, 'ws');
      // A browser cannot set headers here, so the key travels as a subprotocol that the server does not echo.
      const socket = new Socket(address, ['cay.v1', ...(apiKey ? [`cay.key.${apiKey}`] : [])]);
      socket.binaryType = 'arraybuffer';
      await new Promise<void>((resolve, reject) => {
        const fail = () =>
          reject(
            new CayError('unavailable', `Cannot open a WebSocket to ${url}${path}`, {
              hint: 'check the key and that the sandbox is active',
            }),
          );
        socket.addEventListener('open', () => resolve(), { once: true });
        socket.addEventListener('error', fail, { once: true });
        socket.addEventListener('close', fail, { once: true });
        signal?.addEventListener(
          'abort',
          () => (socket.close(), reject(new CayError('cancelled', 'The request was cancelled'))),
          {
            once: true,
          },
        );
      });
      return socket;
    },
  };
  return transport;
}

/** The body's chunks. Ending the loop early cancels the download. */
export async function* bytesOf(response: Response): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function* splitLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of chunks) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = parts.pop() ?? '';
    yield* parts;
  }
  rest += decoder.decode();
  if (rest !== '') yield rest;
}

function isIterable(body: RequestOptions['body']): body is AsyncIterable<Uint8Array> {
  return (
    typeof body === 'object' &&
    body !== null &&
    Symbol.asyncIterator in body &&
    // Looked at last: in Node the mere name loads web streams.
    !(body instanceof ReadableStream)
  );
}

function toBody(body: RequestOptions['body']): Body | undefined {
  if (!isIterable(body)) return body;
  const iterator = body[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

async function errorOf(response: Response): Promise<CayError> {
  const text = await response.text().catch(() => '');
  try {
    const { error } = JSON.parse(text) as { error: WireError };
    // The server tells clients of any kind about headers.
    const hint = 'set CAY_API_KEY to a key of that server, or pass { apiKey }';
    if (isErrorCode(error.code))
      return CayError.fromWire(error.code === 'unauthenticated' ? { ...error, hint } : error);
  } catch {
    // Not one of ours: a proxy in between, for example.
  }
  return new CayError('unavailable', `The server answered ${response.status}: ${text.slice(0, 200)}`);
}
