/** Carries one stream of HTTP/2 over a connection of HTTP/1 inside the process. */
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import {
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import type { Http2SessionsOptions, Remote } from './http2-sessions.ts';
import { innerConnection } from './inner-connection.ts';
import type { Traffic } from './traffic.ts';

export interface CarryOptions extends Pick<Http2SessionsOptions, 'http1' | 'admit'> {
  remote: Remote;
  traffic: Traffic;
}

/** Headers that are about a connection of HTTP/1. HTTP/2 forbids them. */
const OF_CONNECTION = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
  // Answered here: the HTTP/1 side is always ready for the body.
  'expect',
  'te',
]);
const ANSWER_HEADER_BYTES = 128 * 1024;

export function carryStream(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  { http1, admit, remote, traffic }: CarryOptions,
): void {
  // The client may have reset it before it was looked at.
  if (stream.destroyed || stream.closed) return;
  const head = http1Head(headers, stream.endAfterHeaders);
  if ('status' in head) return answer(stream, head.status);
  const [near, far] = innerConnection();
  const inside = Object.assign(far, remote, {
    // HTTP/1 code cuts its connection off where an answer cannot be completed.
    resetAndDestroy: () => far.destroy(),
  });
  near.on('error', () => {});
  far.on('error', () => {});
  if (!admit(inside)) {
    far.destroy();
    return stream.close(constants.NGHTTP2_REFUSED_STREAM);
  }
  http1(inside);
  const outgoing = request({
    createConnection: () => near,
    method: head.method,
    path: head.path,
    headers: head.headers,
    setHost: false,
    maxHeaderSize: ANSWER_HEADER_BYTES,
  });
  if (headers.expect === '100-continue') stream.additionalHeaders({ ':status': 100 });
  let answered: IncomingMessage | undefined;
  outgoing.on('error', () => {
    // An answer may be complete before all of the request was written.
    if (!answered?.complete) cut(stream);
  });
  outgoing.on('response', (response) => {
    answered = response;
    carryAnswer(response, stream, { near, isHead: head.method === 'HEAD' });
  });
  stream.once('close', () => near.destroy());
  if (stream.endAfterHeaders) outgoing.end();
  else carryBody(stream, outgoing, traffic);
}

/** The first line and headers in HTTP/1, or the status with which the stream is refused. */
function http1Head(
  headers: IncomingHttpHeaders,
  isWhole: boolean,
): { method: string; path: string; headers: string[] } | { status: number } {
  const { ':method': method = '', ':path': path, ':authority': authority, host } = headers;
  // Tunnels, and WebSockets in a stream, for which clients open a connection of HTTP/1.
  if (method === 'CONNECT') return { status: 405 };
  if (path === undefined || /[^\x21-\xff]/.test(path)) return { status: 400 };
  if (authority !== undefined && host !== undefined && authority !== host) return { status: 400 };
  const raw: string[] = [];
  const named = authority ?? host;
  if (named !== undefined) raw.push('Host', named);
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(':') || name === 'host' || OF_CONNECTION.has(name)) continue;
    for (const one of typeof value === 'object' ? value : [value]) raw.push(name, one);
  }
  if (!isWhole && headers['content-length'] === undefined) raw.push('Transfer-Encoding', 'chunked');
  raw.push('Connection', 'close');
  return { method, path, headers: raw };
}

function carryBody(stream: ServerHttp2Stream, outgoing: ClientRequest, traffic: Traffic): void {
  stream.on('data', (chunk: Buffer) => {
    traffic.bodyBytes += chunk.length;
    if (!outgoing.write(chunk)) stream.pause();
  });
  outgoing.on('drain', () => stream.resume());
  stream.on('end', () => outgoing.end());
}

function carryAnswer(
  response: IncomingMessage,
  stream: ServerHttp2Stream,
  { near, isHead }: { near: Duplex; isHead: boolean },
): void {
  if (stream.destroyed || stream.closed) return;
  const { statusCode: status = 502 } = response;
  const headers: OutgoingHttpHeaders = { ':status': status };
  for (const [name, value] of Object.entries(response.headers)) {
    if (value !== undefined && !OF_CONNECTION.has(name)) headers[name] = value;
  }
  response.on('error', () => cut(stream));
  const isEmpty = isHead || status === 204 || status === 304;
  stream.respond(headers, { endStream: isEmpty, ...(!isEmpty && { waitForTrailers: true }) });
  if (isEmpty) {
    response.resume();
    near.destroy();
    return finish(stream);
  }
  stream.on('wantTrailers', () => {
    try {
      stream.sendTrailers(trailersOf(response));
      finish(stream);
    } catch {
      // Trailers that HTTP/2 does not allow.
      cut(stream);
    }
  });
  response.on('data', (chunk: Buffer) => {
    if (!stream.destroyed && !stream.write(chunk)) response.pause();
  });
  stream.on('drain', () => response.resume());
  response.on('end', () => {
    // A body of HTTP/1 that ends with its connection may have been cut off.
    if (response.complete) stream.end();
    else cut(stream);
  });
}

function trailersOf(response: IncomingMessage): OutgoingHttpHeaders {
  const sent = Object.entries(response.trailers);
  return Object.fromEntries(sent.filter(([name, value]) => value !== undefined && !OF_CONNECTION.has(name)));
}

/** The answer is complete. A client that still sends its body is told to stop. */
function finish(stream: ServerHttp2Stream): void {
  if (!stream.readableEnded && !stream.endAfterHeaders) stream.close(constants.NGHTTP2_NO_ERROR);
}

/** What HTTP/1 says by resetting its connection. */
function cut(stream: ServerHttp2Stream): void {
  if (!stream.destroyed && !stream.closed) stream.close(constants.NGHTTP2_INTERNAL_ERROR);
}

function answer(stream: ServerHttp2Stream, status: number): void {
  stream.respond({ ':status': status }, { endStream: true });
  finish(stream);
}
