import { CayError } from '@cay/sdk/protocol';
import type { Context } from 'hono';
import type { Files } from '../../guest/guest.ts';
import type { Env } from '../http/route.ts';
import { bytesAnswer } from '../http/stream-answer.ts';

export interface ContentOptions {
  head: boolean;
  range?: string;
  signal: AbortSignal;
}

/** Answers with the content of a file or a range of it, with its length if that is known. */
export async function contentAnswer(
  context: Context<Env>,
  files: Files,
  path: string,
  options: ContentOptions,
): Promise<Response> {
  const { head, signal } = options;
  const wanted = parseRange(options.range);
  if (head || wanted?.from === undefined) {
    // A suffix and a HEAD need the size first.
    if (head || wanted) {
      const { sizeBytes, type } = await files.stat(path, { follow: true, signal });
      if (type === 'directory')
        throw new CayError('failed_precondition', `"${path}" is a directory`, {
          details: { errno: 'EISDIR' },
        });
      if (head) return context.body(null, 200, { ...HEADERS, 'Content-Length': String(sizeBytes) });
      return ranged(
        context,
        files,
        path,
        { from: Math.max(0, sizeBytes - wanted!.length!), length: undefined },
        signal,
      );
    }
    const { info, data } = await files.read(path, { signal });
    // Files in /proc have a size of 0, and content.
    if (info.sizeBytes === 0) return bytesAnswer(context, data, { headers: HEADERS });
    return bytesAnswer(context, exactly(data, info.sizeBytes), {
      headers: { ...HEADERS, 'Content-Length': String(info.sizeBytes) },
    });
  }
  return ranged(context, files, path, { from: wanted.from, length: wanted.length }, signal);
}

const HEADERS = {
  'Content-Type': 'application/octet-stream',
  'Accept-Ranges': 'bytes',
  'Cache-Control': 'no-store',
};

async function ranged(
  context: Context<Env>,
  files: Files,
  path: string,
  range: { from: number; length: number | undefined },
  signal: AbortSignal,
): Promise<Response> {
  const { info, data } = await files.read(path, { offset: range.from, length: range.length, signal });
  const size = info.sizeBytes;
  const length = Math.min(range.length ?? Infinity, size - range.from);
  if (length <= 0) {
    await data[Symbol.asyncIterator]().return?.();
    const error = {
      code: 'invalid_argument',
      message: `The range begins beyond the end of "${path}"`,
      details: { sizeBytes: size },
    };
    return context.json({ error }, 416, { 'Content-Range': `bytes */${size}` });
  }
  return bytesAnswer(context, exactly(data, length), {
    status: 206,
    headers: {
      ...HEADERS,
      'Content-Length': String(length),
      'Content-Range': `bytes ${range.from}-${range.from + length - 1}/${size}`,
    },
  });
}

/**
 * Parses a range of bytes. Any other `Range` is ignored, as HTTP allows, and the whole content is the answer.
 */
export function parseRange(header: string | undefined): { from?: number; length?: number } | undefined {
  const match = header === undefined ? null : /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header);
  if (!match) return undefined;
  const [, first = '', last = ''] = match;
  if (first === '') return last === '' ? undefined : { length: Number(last) };
  if (last === '') return { from: Number(first) };
  return Number(last) < Number(first)
    ? undefined
    : { from: Number(first), length: Number(last) - Number(first) + 1 };
}

/** Exactly the announced number of bytes: a file may grow or shrink while it is read. */
export async function* exactly(data: AsyncIterable<Uint8Array>, length: number): AsyncGenerator<Uint8Array> {
  let left = length;
  for await (const chunk of data) {
    if (chunk.length >= left) {
      yield chunk.subarray(0, left);
      return;
    }
    left -= chunk.length;
    yield chunk;
  }
  throw new CayError('conflict', `The file became ${left} bytes shorter while it was read`);
}
