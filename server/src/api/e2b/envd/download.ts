/** `GET /files`: the content of a file or a range of it, compressed if the client asks for that. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { BoundedBytes } from '../../../lib/bounded-bytes.ts';
import { writeBytes } from '../../http/stream-answer.ts';
import { exactly, parseRange } from '../../rest/file-content.ts';
import { filesOf, resolvePath, type EnvdContext } from './context.ts';
import { acceptedEncoding } from './encoding.ts';

const SHORT_BYTES = 64 * 1024;

export async function download(
  context: EnvdContext,
  request: IncomingMessage,
  response: ServerResponse,
  given: string,
): Promise<void> {
  const path = await resolvePath(context, given);
  const encoding = acceptedEncoding(request.headers['accept-encoding']);
  const files = filesOf(context);
  const range = encoding === 'gzip' ? undefined : parseRange(request.headers.range);
  const { signal } = context;
  // A whole file takes one call of the guest: it tells the size with the content.
  const whole = range ? undefined : await files.read(path, { signal }).catch(unreadable(path));
  const info = whole?.info ?? (await files.stat(path, { follow: true }).catch(unreadable(path)));
  if (info.type === 'directory') throw isDirectory(path);
  const headers: Record<string, string> = {
    'Content-Type': 'application/octet-stream',
    // A file of a sandbox is never shown as a page of this server.
    'Content-Disposition': `attachment; filename*=UTF-8''${encodeURIComponent(posix.basename(path).toWellFormed())}`,
    'Cache-Control': 'no-store',
    Vary: 'Accept-Encoding',
  };
  if (encoding === 'gzip' && whole) {
    response.writeHead(200, { ...headers, 'Content-Encoding': 'gzip' });
    return pipeline(Readable.from(whole.data, { objectMode: false }), createGzip(), response);
  }
  headers['Accept-Ranges'] = 'bytes';
  const size = info.sizeBytes;
  const from = range === undefined ? 0 : (range.from ?? Math.max(0, size - (range.length ?? 0)));
  const length = Math.min(range?.from === undefined ? Infinity : (range.length ?? Infinity), size - from);
  if (range && length <= 0) {
    response.writeHead(416, { 'Content-Range': `bytes */${size}` }).end();
    return;
  }
  const { data } = whole ?? (await files.read(path, { offset: from, length, signal }));
  // Files in /proc have a size of 0, and an empty file may have grown. The length of a short file is sent,
  // because clients show it.
  if (size === 0) {
    const { start, rest } = await beginning(data);
    if (!rest) return void response.writeHead(200, { ...headers, 'Content-Length': start.length }).end(start);
    response.writeHead(200, headers);
    return pipeline(Readable.from(rest, { objectMode: false }), response);
  }
  response.writeHead(range ? 206 : 200, {
    ...headers,
    'Content-Length': length,
    ...(range && { 'Content-Range': `bytes ${from}-${from + length - 1}/${size}` }),
  });
  try {
    await writeBytes(response, exactly(data, length));
  } catch (error) {
    response.destroy();
    throw error;
  }
}

function isDirectory(path: string): CayError {
  return new CayError('invalid_argument', `path '${path}' is a directory`);
}

/** Throws what a client expects for a file that cannot be read. */
function unreadable(path: string): (error: unknown) => never {
  return (error) => {
    if (isCayError(error, 'not_found')) throw new CayError('not_found', `path '${path}' does not exist`);
    throw isCayError(error) && error.details['errno'] === 'EISDIR' ? isDirectory(path) : error;
  };
}

/** The first bytes; with `rest`, which begins with them, if there are more. */
async function beginning(
  data: AsyncIterable<Uint8Array>,
): Promise<{ start: Buffer; rest?: AsyncIterable<Uint8Array> }> {
  const source = data[Symbol.asyncIterator]();
  const start = new BoundedBytes(SHORT_BYTES);
  for (let next = await source.next(); !next.done; next = await source.next()) {
    const taken = start.add(next.value);
    if (taken === next.value.length) continue;
    const left = next.value.subarray(taken);
    return { start: start.whole(), rest: continued([start.whole(), left], source) };
  }
  return { start: start.whole() };
}

async function* continued(
  pieces: Uint8Array[],
  source: AsyncIterator<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  try {
    yield* pieces;
    for (let next = await source.next(); !next.done; next = await source.next()) yield next.value;
  } finally {
    await source.return?.();
  }
}
