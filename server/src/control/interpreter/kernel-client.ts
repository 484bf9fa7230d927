/**
 * Speaks with the kernel of a sandbox: HTTP over a connection to its port. All answers are hostile: any
 * program inside can listen there. Lines are bounded in bytes and values, what a project has of them at once
 * too, and they are parsed in pieces.
 */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { CayError, type ErrorCode } from '@cay/sdk/protocol';
import { connectionStream } from '../../guest/connection-stream.ts';
import type { CallOptions, Guest } from '../../guest/guest.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';
import { parsePieces } from '../../lib/parse-json.ts';
import { nextSlice } from '../../lib/slices.ts';
import { INTERPRETER_PORT } from './interpreter.ts';

export interface KernelRequest extends CallOptions {
  /** The project of the caller. */
  owner: string;
  method: 'GET' | 'POST' | 'DELETE';
  path: string;
  body?: unknown;
}

const MAX_ANSWER = 1024 * 1024;
/** One event may be an image. */
const MAX_LINE = 16 * 1024 * 1024;
/** Of all lines that have begun and not ended, of one project. */
const MAX_HELD = 64 * 1024 * 1024;
const MAX_VALUES = 100_000;
const SMALL_LINE = 64 * 1024;
/** Pieces of a line that are kept as they came. */
const MAX_PIECES = 256;
const CODES: Record<number, ErrorCode> = {
  400: 'invalid_argument',
  403: 'permission_denied',
  404: 'not_found',
  413: 'resource_exhausted',
  429: 'resource_exhausted',
};

/** A small answer as a value. */
export async function askKernel(guest: Guest, request: KernelRequest): Promise<unknown> {
  const { answer, close } = await send(guest, request);
  try {
    const text = (await collectBytes(answer, MAX_ANSWER))?.toString();
    if (text === undefined) throw malformed();
    return text === '' ? undefined : await parse(Buffer.from(text), request.owner);
  } finally {
    close();
  }
}

/** An answer that streams, value by value. Leaving the loop closes the connection, which ends the run. */
export async function streamKernel(guest: Guest, request: KernelRequest): Promise<AsyncIterable<unknown>> {
  const { answer, close } = await send(guest, request);
  return (async function* () {
    try {
      yield* lines(answer, request.owner);
    } finally {
      close();
    }
  })();
}

async function send(
  guest: Guest,
  { method, path, body, signal }: KernelRequest,
): Promise<{ answer: IncomingMessage; close(): void }> {
  const stream = connectionStream(await guest.ports.connect(INTERPRETER_PORT, { ...(signal && { signal }) }));
  const data = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
  const request = httpRequest({
    createConnection: () => stream,
    method,
    path,
    headers: { host: 'localhost', ...(data && { 'content-length': data.length }) },
    ...(signal && { signal }),
  });
  const close = () => {
    request.destroy();
    stream.destroy();
  };
  try {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    // A listener stays for as long as the connection: an error after the answer began must not be unhandled.
    request.on('error', reject).on('response', resolve);
    request.end(data);
    const answer = await promise;
    answer.on('error', () => {});
    if (answer.statusCode! < 400) return { answer, close };
    const text = (await collectBytes(answer, MAX_ANSWER))?.toString() ?? '';
    throw new CayError(CODES[answer.statusCode!] ?? 'failed_precondition', text.slice(0, 1000));
  } catch (error) {
    close();
    if (signal?.aborted) throw new CayError('cancelled', 'The caller disconnected', { cause: error });
    if (error instanceof CayError) throw error;
    throw new CayError('unavailable', 'The code interpreter broke off the connection', { cause: error });
  }
}

/** Bytes of lines that have not ended, by project. */
const heldBy = new Map<string, number>();

async function* lines(answer: AsyncIterable<Buffer>, owner: string): AsyncGenerator<unknown> {
  let pieces: Buffer[] = [];
  let size = 0;
  const hold = (bytes: number) => {
    size += bytes;
    const all = (heldBy.get(owner) ?? 0) + bytes;
    if (all > 0) heldBy.set(owner, all);
    else heldBy.delete(owner);
    if (bytes > 0 && size > MAX_LINE) throw tooLarge('An event of the interpreter is', MAX_LINE);
    if (bytes > 0 && all > MAX_HELD)
      throw tooLarge('The events of interpreters that this project waits for are', MAX_HELD);
  };
  try {
    for await (const chunk of answer) {
      let rest = chunk;
      for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
        const line = Buffer.concat([...pieces, rest.subarray(0, at)]);
        rest = rest.subarray(at + 1);
        const value = line.length > 0 ? await parse(line, owner) : undefined;
        pieces = [];
        hold(-size);
        if (line.length > 0) yield value;
      }
      if (rest.length === 0) continue;
      hold(rest.length);
      pieces.push(rest);
      if (pieces.length > MAX_PIECES) pieces = [Buffer.concat(pieces)];
    }
  } catch (error) {
    if (error instanceof CayError) throw error;
    throw new CayError('unavailable', 'The code interpreter broke off the connection', { cause: error });
  } finally {
    hold(-size);
  }
}

async function parse(line: Buffer, owner: string): Promise<unknown> {
  try {
    if (line.length <= SMALL_LINE) return JSON.parse(line.toString()) as unknown;
    const parsing = parsePieces(line, MAX_VALUES);
    for (;;) {
      await nextSlice(owner);
      const { done, value } = parsing.next();
      if (done) return value;
    }
  } catch {
    throw malformed();
  }
}

const tooLarge = (what: string, most: number) =>
  new CayError('resource_exhausted', `${what} larger than ${most} bytes`, {
    hint: 'have the code show less at once',
  });
const malformed = () => new CayError('failed_precondition', 'The code interpreter gave no valid answer');
