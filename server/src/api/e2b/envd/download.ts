/** `GET /files`: a file's bytes, whole or a range of them, packed if the caller asks for that. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { exactly, parseRange } from '../../file-content.ts';
import { filesOf, resolvePath, type EnvdContext } from './context.ts';
import { acceptedEncoding } from './encoding.ts';

export async function download(context: EnvdContext, request: IncomingMessage, response: ServerResponse, given: string): Promise<void> {
  const path = await resolvePath(context, given);
  const encoding = acceptedEncoding(request.headers['accept-encoding']);
  const files = filesOf(context);
  const info = await files.stat(path, { follow: true }).catch((error: unknown) => {
    throw isCayError(error, 'not_found') ? new CayError('not_found', `path '${path}' does not exist`) : error;
  });
  if (info.type === 'directory') throw new CayError('invalid_argument', `path '${path}' is a directory`);
  const headers: Record<string, string> = {
    'Content-Type': 'application/octet-stream',
    // Whatever a sandbox has written is never shown as a page of this server.
    'Content-Disposition': `attachment; filename*=UTF-8''${encodeURIComponent(posix.basename(path).toWellFormed())}`,
    'Cache-Control': 'no-store',
    Vary: 'Accept-Encoding',
  };
  if (encoding === 'gzip') {
    const { data } = await files.read(path, { signal: context.signal });
    response.writeHead(200, { ...headers, 'Content-Encoding': 'gzip' });
    return pipeline(Readable.from(data, { objectMode: false }), createGzip(), response);
  }
  headers['Accept-Ranges'] = 'bytes';
  const range = parseRange(request.headers.range);
  const size = info.sizeBytes;
  const from = range === undefined ? 0 : (range.from ?? Math.max(0, size - (range.length ?? 0)));
  const length = Math.min(range?.from === undefined ? Infinity : (range.length ?? Infinity), size - from);
  if (range && length <= 0) {
    response.writeHead(416, { 'Content-Range': `bytes */${size}` }).end();
    return;
  }
  const { data } = await files.read(path, { ...(range && { offset: from, length }), signal: context.signal });
  // What the kernel makes up while it is read, as in /proc, has no size; a file that is empty has none either.
  if (size === 0) {
    const content = Buffer.concat(await Array.fromAsync(data));
    response.writeHead(200, { ...headers, 'Content-Length': content.length }).end(content);
    return;
  }
  response.writeHead(range ? 206 : 200, {
    ...headers,
    'Content-Length': length,
    ...(range && { 'Content-Range': `bytes ${from}-${from + length - 1}/${size}` }),
  });
  await pipeline(Readable.from(exactly(data, length), { objectMode: false }), response);
}
