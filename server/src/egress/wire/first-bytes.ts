import type { Duplex } from 'node:stream';
import { Denial } from '../carrier/denial.ts';
import { type ClientHello, parseClientHello } from './client-hello.ts';

/** What a program speaks, judged by the first bytes that it sends. */
export type FirstBytes =
  | { readonly kind: 'tls'; readonly hello: ClientHello }
  /** TLS by its first byte, and nothing that a library sends; or in so many pieces that only an attack is. */
  | { readonly kind: 'bad' }
  | { readonly kind: 'http1' }
  /** HTTP/2 without TLS. */
  | { readonly kind: 'http2' }
  /** `rest` has what was sent, if it ended with that and cannot be put back. */
  | { readonly kind: 'other'; readonly rest?: Buffer }
  /** It may become a request, and waits. Only with `patienceMs`. */
  | { readonly kind: 'undecided' }
  /** It ended, or sent nothing in time. */
  | { readonly kind: 'nothing' };

/** What an attempt is recorded as, before anything of it is a request. */
export function protocolOf({ kind }: FirstBytes): 'tls' | 'http' | 'tcp' {
  return kind === 'tls' ? kind : kind === 'http1' || kind === 'http2' ? 'http' : 'tcp';
}

const MAX_LINE = 16 * 1024;
/** Each piece makes all before it be judged again. */
const MAX_PIECES = 1024;
const PREFACE = 'PRI * HTTP/2.0\r\n';
const REQUEST_LINE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]+\S.*HTTP\/\d/i;

/** Nothing if more bytes are needed. */
export function judgeFirstBytes(bytes: Buffer): FirstBytes | undefined {
  if (bytes.length === 0) return undefined;
  if (bytes[0] === 22) {
    const result = parseClientHello(bytes);
    if (result.kind === 'hello') return { kind: 'tls', hello: result.hello };
    return result.kind === 'more' ? undefined : { kind: 'bad' };
  }
  // Servers skip empty lines before a request.
  let start = 0;
  while (start < bytes.length && isLineBreak(bytes[start]!)) start++;
  if (start === bytes.length) return bytes.length > MAX_LINE ? { kind: 'other' } : undefined;
  const end = bytes.indexOf(10, start);
  const line = bytes.subarray(start, end === -1 ? bytes.length : end).toString('latin1');
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]*([ \t]|$|\r)/.test(line)) return { kind: 'other' };
  // eslint-disable-next-line no-control-regex
  if (/[\x00-\x08\x0b\x0c\x0e-\x1f]/.test(line)) return { kind: 'other' };
  if (end === -1) return bytes.length > MAX_LINE ? { kind: 'other' } : undefined;
  if (`${line}\n`.startsWith(PREFACE)) return { kind: 'http2' };
  return { kind: REQUEST_LINE.test(line) ? 'http1' : 'other' };
}

function isLineBreak(byte: number): boolean {
  return byte === 10 || byte === 13;
}

export interface FirstBytesOptions {
  /** Until it is clear what is spoken. */
  readonly timeoutMs?: number | undefined;
  /** After the first bytes, if they may become a request. */
  readonly patienceMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads from a stream until it is clear what is spoken, and puts the bytes back. The stream is paused then.
 * Without a timeout it waits as long as the stream is open. An aborted signal says that it does not matter
 * any more, and gives `other`.
 */
export function readFirstBytes(
  stream: Duplex,
  { timeoutMs, patienceMs, signal }: FirstBytesOptions = {},
): Promise<FirstBytes> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const done = (result: FirstBytes) => {
      clearTimeout(timer);
      clearTimeout(patience);
      signal?.removeEventListener('abort', onAbort);
      stream.off('readable', onReadable).off('end', onEnd).off('close', onEnd);
      const bytes = Buffer.concat(chunks);
      if (bytes.length > 0 && stream.readableEnded) resolve({ kind: 'other', rest: bytes });
      else {
        if (bytes.length > 0 && !stream.destroyed) stream.unshift(bytes);
        resolve(result);
      }
    };
    const onAbort = () => done({ kind: 'other' });
    const onEnd = () => done(chunks.length > 0 ? { kind: 'other' } : { kind: 'nothing' });
    const onReadable = () => {
      for (;;) {
        const chunk = stream.read() as Buffer | null;
        if (chunk === null) break;
        chunks.push(chunk);
        const result: FirstBytes | undefined =
          chunks.length > MAX_PIECES
            ? { kind: 'bad' }
            : judgeFirstBytes(chunks.length === 1 ? chunk : Buffer.concat(chunks));
        if (result) {
          done(result);
          return;
        }
      }
      if (stream.readableEnded || stream.destroyed) onEnd();
      else if (patienceMs !== undefined && chunks.length > 0 && chunks[0]![0] !== 22)
        patience ??= setTimeout(() => done({ kind: 'undecided' }), patienceMs);
    };
    let patience: NodeJS.Timeout | undefined;
    const timer =
      timeoutMs === undefined ? undefined : setTimeout(() => done({ kind: 'nothing' }), timeoutMs);
    signal?.addEventListener('abort', onAbort, { once: true });
    stream.on('readable', onReadable).on('end', onEnd).on('close', onEnd);
    if (signal?.aborted) onAbort();
    else onReadable();
  });
}

/** Refuses a request that comes so slowly that its beginning was let through. */
export function requestWatch(): (chunk: Buffer) => void {
  let bytes: Buffer | undefined = Buffer.alloc(0);
  let pieces = 0;
  return (chunk) => {
    if (!bytes) return;
    bytes = Buffer.concat([bytes, chunk]);
    const first = ++pieces > MAX_PIECES ? ({ kind: 'bad' } as const) : judgeFirstBytes(bytes);
    if (!first) return;
    bytes = undefined;
    if (first.kind !== 'other')
      throw new Denial('ambiguous_request', 'The beginning of the request came too slowly');
  };
}
