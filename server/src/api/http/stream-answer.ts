/**
 * Streamed answers: bytes, or one JSON value after the other. The source is read at the speed of the client.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { giveBack } from '../../lib/lent-memory.ts';
import { valueWithin } from '../../lib/timeout.ts';
import { drained } from '../../lib/drained.ts';
import { errorAnswer, wireError } from './error-answer.ts';
import type { Env } from './route.ts';
import { traceOf } from './trace.ts';

const NDJSON = 'application/x-ndjson';
const SSE = 'text/event-stream';
/** Media types, for descriptions of routes. */
export const STREAMS = [NDJSON, SSE] as const;

export type StreamFormat = 'ndjson' | 'sse';

const HEARTBEAT_MS = 15_000;

/** The stream that the caller asked for, or `undefined` if it did not ask for one. */
export function streamFormat(context: Context<Env>): StreamFormat | undefined {
  const accept = context.env.incoming.headers.accept;
  if (accept === undefined) return undefined;
  if (accept.includes(SSE)) return 'sse';
  if (accept.includes(NDJSON)) return 'ndjson';
  return undefined;
}

/**
 * Answers with the bytes of a source. A source that fails before its first byte is answered with an error.
 * One that fails later has its connection cut: the status is sent by then, and what was sent so far must not
 * look like all of it. The adapter of the HTTP framework would end such an answer in good order, with a
 * length.
 */
export async function bytesAnswer(
  context: Context<Env>,
  data: AsyncIterable<Uint8Array>,
  options: { status?: 200 | 206; headers: Record<string, string> },
): Promise<Response> {
  const response = context.env.outgoing;
  const source = wholeOrCut(await begun(data), response);
  if (response.headersSent || response.destroyed) return RESPONSE_ALREADY_SENT;
  // Written here and not by the framework, which would turn every chunk into web streams and back.
  response.writeHead(options.status ?? 200, options.headers);
  await writeBytes(response, source);
  return RESPONSE_ALREADY_SENT;
}

/** Writes all of it at the speed of the client, and ends the answer. Chunks that are lent are given back. */
export async function writeBytes(response: ServerResponse, data: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of data) {
    if (response.destroyed) return;
    if (!response.write(chunk, (error) => error ?? giveBack(chunk))) await drained(response);
  }
  if (!response.destroyed) response.end();
}

async function* wholeOrCut(
  data: AsyncIterable<Uint8Array>,
  response: ServerResponse,
): AsyncGenerator<Uint8Array> {
  try {
    yield* data;
  } catch (error) {
    if (errorAnswer(error).cause !== undefined) traceOf(response).error = error;
    cutOff(response);
  }
}

/**
 * Ends the connection with a reset. A client of HTTP/1.0, which many proxies are, takes the orderly end of a
 * connection for the end of the body. Clients of E2B tell a sandbox that is gone by the reset, also over TLS.
 */
export function cutOff(response: ServerResponse): void {
  const { socket } = response;
  if (socket && !socket.destroyed) connectionOf(socket)?.resetAndDestroy();
  response.destroy();
}

/** The TCP connection. Of that below TLS, which alone can be reset, Node has no public name. */
function connectionOf(socket: Socket): Socket | undefined {
  return socket instanceof TLSSocket ? (socket as TLSSocket & { _parent?: Socket })._parent : socket;
}

/** Waits for the first value, so that a source that fails at once fails before anything is sent. */
export async function begun<T>(source: AsyncIterable<T>): Promise<AsyncIterable<T>> {
  const values = source[Symbol.asyncIterator]();
  const first = await values.next();
  return (async function* () {
    try {
      for (let next = first; !next.done; next = await values.next()) yield next.value;
    } finally {
      await values.return?.();
    }
  })();
}

export interface EventsOptions<T> {
  /** Default NDJSON. */
  format?: StreamFormat;
  /** The event's id, with which a reader resumes. SSE only. */
  id?(value: T): string | number;
}

/**
 * Each value is one line or event. Keepalives are sent while nothing else is; a failure is a last value of
 * type `error`.
 */
export function eventsAnswer<T>(
  context: Context<Env>,
  source: AsyncIterable<T>,
  options: EventsOptions<T> = {},
): Response {
  const format = options.format ?? streamFormat(context) ?? 'ndjson';
  const trace = traceOf(context.env.outgoing);
  trace.endless = true;
  const onError = (error: unknown) => {
    if (errorAnswer(error).cause !== undefined) trace.error = error;
  };
  return context.newResponse(ReadableStream.from(encodeEvents(source, format, { id: options.id, onError })), {
    headers: {
      'Content-Type': format === 'sse' ? SSE : NDJSON,
      'Transfer-Encoding': 'chunked',
      'Cache-Control': 'no-store',
      // Asks proxies not to buffer events.
      'X-Accel-Buffering': 'no',
    },
  });
}

export async function* encodeEvents<T>(
  source: AsyncIterable<T>,
  format: StreamFormat,
  options: { id?(value: T): string | number; onError?(error: unknown): void; heartbeatMs?: number } = {},
): AsyncGenerator<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  const encode = (value: unknown, id?: string | number) => {
    const json = JSON.stringify(value);
    if (format === 'ndjson') return Buffer.from(`${json}\n`);
    return Buffer.from(`${id === undefined ? '' : `id: ${id}\n`}data: ${json}\n\n`);
  };
  const heartbeat = Buffer.from(format === 'ndjson' ? '\n' : ': alive\n\n');
  let pending: Promise<IteratorResult<T>> | undefined;
  try {
    for (;;) {
      pending ??= iterator.next();
      const result = await valueWithin(pending, options.heartbeatMs ?? HEARTBEAT_MS);
      if (result === undefined) {
        yield heartbeat;
        continue;
      }
      pending = undefined;
      if (result.done) return;
      yield encode(result.value, options.id?.(result.value));
    }
  } catch (error) {
    options.onError?.(error);
    yield encode({ type: 'error', error: wireError(error) });
  } finally {
    // A source that waits is ended by its signal; this does not wait for it.
    if (pending) pending.catch(() => {});
    iterator.return?.().catch(() => {});
  }
}
