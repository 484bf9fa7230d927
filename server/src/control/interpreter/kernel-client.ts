/** Speaks with the kernel of a sandbox: HTTP over a connection to its port. All answers are hostile. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { CayError, type ErrorCode } from '@cay/sdk/protocol';
import { connectionStream } from '../../guest/connection-stream.ts';
import type { CallOptions, Guest } from '../../guest/guest.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';
import { INTERPRETER_PORT } from './interpreter.ts';

export interface KernelRequest extends CallOptions {
  method: 'GET' | 'POST' | 'DELETE';
  path: string;
  body?: unknown;
}

const MAX_ANSWER = 1024 * 1024;
/** One event may be an image. */
const MAX_LINE = 64 * 1024 * 1024;
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
    return text === '' ? undefined : parse(text);
  } finally {
    close();
  }
}

/** An answer that streams, value by value. Leaving the loop closes the connection, which ends the run. */
export async function streamKernel(guest: Guest, request: KernelRequest): Promise<AsyncIterable<unknown>> {
  const { answer, close } = await send(guest, request);
  return (async function* () {
    try {
      yield* lines(answer);
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

async function* lines(answer: AsyncIterable<Buffer>): AsyncGenerator<unknown> {
  let held: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of answer) {
      let rest = chunk;
      for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
        const line = Buffer.concat([...held, rest.subarray(0, at)]);
        held = [];
        size = 0;
        rest = rest.subarray(at + 1);
        if (line.length > 0) yield parse(line.toString());
      }
      if (rest.length > 0) held.push(rest);
      size += rest.length;
      if (size > MAX_LINE)
        throw new CayError(
          'resource_exhausted',
          `An event of the interpreter is larger than ${MAX_LINE} bytes`,
        );
    }
  } catch (error) {
    if (error instanceof CayError) throw error;
    throw new CayError('unavailable', 'The code interpreter broke off the connection', { cause: error });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw malformed();
  }
}

const malformed = () => new CayError('failed_precondition', 'The code interpreter gave no valid answer');
