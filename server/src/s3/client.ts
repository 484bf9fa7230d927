/** Signed requests to one bucket, tried again where another attempt may succeed. */
import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { BodyTooLong, discard, readWhole } from '../lib/http-body.ts';
import { presignV4, signV4 } from '../lib/sigv4.ts';
import type { BucketAddress } from './bucket-address.ts';
import type { BucketCredentials } from './bucket.ts';
import { fromS3, unreachable, type Refused } from './s3-errors.ts';
import type { Transport } from './transport.ts';
import { parseXml, textOf, type XmlElement } from './xml.ts';

export interface ClientOptions {
  address: BucketAddress;
  /** Asked for each request, so that changed ones need no restart. */
  credentials(): BucketCredentials | Promise<BucketCredentials>;
  transport: Transport;
  attempts: number;
  /** The first pause; it doubles up to `maxPauseMs`, and a random part of it is waited. */
  pauseMs: number;
  maxPauseMs: number;
}

export interface S3Request {
  /** What is attempted, for errors: `read "a" of`. */
  what: string;
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  /** Below the prefix. Absent: the bucket itself. */
  key?: string | undefined;
  query?: Record<string, string | number>;
  headers?: Record<string, string>;
  body?: readonly Uint8Array[];
  /** The object that is copied: its key below the prefix, in a header. */
  source?: string;
  /** In hexadecimal. Computed if absent. */
  sha256?: string;
  /** How long the server may be silent, and its document may take to come. Default: as usual. */
  patienceMs?: number;
  /** Refusals that are answers: they are not thrown. */
  expect?: readonly number[];
  signal?: AbortSignal | undefined;
}

export interface S3Client {
  /** The answer, of status 2xx or an expected one. Its body is to be read or destroyed. */
  send(request: S3Request): Promise<IncomingMessage>;
  /** The same, with the answer's document. A document that is an error is one, also with status 200. */
  document(request: S3Request): Promise<{ answer: IncomingMessage; document: XmlElement | undefined }>;
  presign(method: 'GET' | 'PUT', key: string, expiresSeconds: number): Promise<string>;
}

/** An answer or a failure after which another attempt may succeed. */
class Transient extends Error {
  override readonly name = 'Transient';
  readonly failure: unknown;
  readonly afterMs: number;
  constructor(failure: unknown, afterMs = 0) {
    super('transient');
    this.failure = failure;
    this.afterMs = afterMs;
  }
}

/** A page of a thousand keys of 1,024 bytes, each byte written as three. */
const MOST_ANSWER = 4 * 1024 * 1024;
const MOST_ERROR = 64 * 1024;
const BODY_MS = 60_000;
const MOST_RETRY_AFTER_MS = 30_000;
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]);
const TRANSIENT_CODES = new Set([
  'RequestTimeout',
  'SlowDown',
  'InternalError',
  'ServiceUnavailable',
  'OperationAborted',
  'BadDigest',
  'XAmzContentSHA256Mismatch',
  'IncompleteBody',
]);
const EMPTY = createHash('sha256').digest('hex');

export function openClient({
  address,
  credentials,
  transport,
  attempts,
  pauseMs,
  maxPauseMs,
}: ClientOptions): S3Client {
  const { endpoint, bucket, prefix, region, style } = address;
  const authority = style === 'host' ? `${bucket}.${endpoint.host}` : endpoint.host;
  /** What the server's clock is ahead of ours. */
  let skewMs = 0;

  function targetOf(key: string | undefined, query: S3Request['query'] = {}): string {
    const base = style === 'host' ? '' : `/${bucket}`;
    const path =
      key === undefined
        ? style === 'host'
          ? '/'
          : base
        : `${base}/${(prefix + key).split('/').map(encoded).join('/')}`;
    const pairs = Object.entries(query).map(([name, value]) => `${encoded(name)}=${encoded(String(value))}`);
    return pairs.length === 0 ? path : `${path}?${pairs.join('&')}`;
  }

  async function once(request: S3Request): Promise<IncomingMessage> {
    const { method, key, query, body = [], patienceMs, source, signal } = request;
    const headers = {
      ...request.headers,
      ...(source !== undefined && {
        'x-amz-copy-source': `/${bucket}/${(prefix + source).split('/').map(encoded).join('/')}`,
      }),
    };
    const target = targetOf(key, query);
    const { accessKeyId, secretKey, sessionToken } = await credentials();
    const length = body.reduce((sum, part) => sum + part.length, 0);
    const signed = signV4({
      method,
      authority,
      target,
      headers: Object.entries(headers),
      payloadHash: request.sha256 ?? (length === 0 ? EMPTY : hashOf(body)),
      region,
      service: 's3',
      accessKeyId,
      secretKey,
      sessionToken,
      now: new Date(Date.now() + skewMs),
    });
    const all = Object.fromEntries(signed);
    all['host'] = authority;
    all['user-agent'] = 'cay';
    if (length > 0 || method === 'PUT' || method === 'POST') all['content-length'] = String(length);
    // The URL's parser would change some paths, so that the target is given as it was signed.
    const url = new URL(`${endpoint.protocol}//${authority}`);
    let answer: IncomingMessage;
    try {
      answer = await transport.send({ method, url, target, headers: all, body, patienceMs, signal });
    } catch (error) {
      if (signal?.aborted || error instanceof CayError) throw error;
      throw new Transient(unreachable(request.what, address, error));
    }
    const { statusCode = 0 } = answer;
    if ((statusCode >= 200 && statusCode < 300) || request.expect?.includes(statusCode)) return answer;
    const refused = await refusalIn(answer, method === 'HEAD');
    if (refused.code === 'RequestTimeTooSkewed') {
      const theirs = Date.parse(answer.headers.date ?? '');
      if (!Number.isNaN(theirs)) skewMs = theirs - Date.now();
      throw new Transient(fromS3(request.what, address, refused));
    }
    const failure = fromS3(request.what, address, refused);
    if (TRANSIENT.has(statusCode) || TRANSIENT_CODES.has(refused.code))
      throw new Transient(failure, retryAfter(answer));
    throw failure;
  }

  async function withRetries<T>(signal: AbortSignal | undefined, attempt: () => Promise<T>): Promise<T> {
    for (let number = 1; ; number++) {
      signal?.throwIfAborted();
      try {
        return await attempt();
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!(error instanceof Transient)) throw error;
        if (number >= attempts) throw error.failure;
        const pause = Math.min(pauseMs * 2 ** (number - 1), maxPauseMs);
        const waitMs = Math.max(error.afterMs, pause / 2 + (Math.random() * pause) / 2);
        await sleep(waitMs, undefined, signal && { signal }).catch(() => {
          throw signal?.reason;
        });
      }
    }
  }

  return {
    send: (request) => withRetries(request.signal, () => once(request)),
    document: (request) =>
      withRetries(request.signal, async () => {
        const answer = await once(request);
        const body = await readBody(answer, MOST_ANSWER, request.patienceMs).catch((error: unknown) => {
          if (request.signal?.aborted) throw error;
          const failure = unreachable(request.what, address, error);
          throw error instanceof BodyTooLong ? failure : new Transient(failure);
        });
        const text = body.toString();
        const document = text.trim() === '' ? undefined : parseXml(text);
        // A server that began to answer before it was done says by the document that it failed.
        if (document?.name === 'Error') {
          const refused = { status: 500, ...errorIn(document) };
          throw new Transient(fromS3(request.what, address, refused));
        }
        return { answer, document };
      }),
    async presign(method, key, expiresSeconds) {
      const target = targetOf(key);
      const signed = presignV4({
        method,
        authority,
        target,
        region,
        service: 's3',
        ...(await credentials()),
        now: new Date(Date.now() + skewMs),
        expiresSeconds,
      });
      return `${endpoint.protocol}//${authority}${signed}`;
    },
  };
}

/** As the signature has it, so that nobody on the way has to know that it is the same. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function hashOf(body: readonly Uint8Array[]): string {
  const hash = createHash('sha256');
  for (const part of body) hash.update(part);
  return hash.digest('hex');
}

/** Within a time: a server that dribbles its answer is cut off. */
async function readBody(answer: IncomingMessage, most: number, withinMs = BODY_MS): Promise<Buffer> {
  const timer = setTimeout(
    () => answer.destroy(Object.assign(new Error('too slow'), { code: 'ETIMEDOUT' })),
    withinMs,
  );
  try {
    return await readWhole(answer, most);
  } finally {
    clearTimeout(timer);
  }
}
async function refusalIn(answer: IncomingMessage, isHead: boolean): Promise<Refused> {
  const { statusCode: status = 0, headers } = answer;
  const region = headers['x-amz-bucket-region'];
  const known = typeof region === 'string' && /^[a-z0-9-]{1,63}$/.test(region) ? { region } : {};
  if (isHead) discard(answer);
  const body = isHead ? Buffer.alloc(0) : await readBody(answer, MOST_ERROR).catch(() => Buffer.alloc(0));
  const document = parseXml(body.toString());
  return { status, ...known, ...errorIn(document) };
}

function errorIn(document: XmlElement | undefined): { code: string; message: string; region?: string } {
  const region = textOf(document, 'Region');
  return {
    code: (textOf(document, 'Code') ?? '').slice(0, 60),
    message: textOf(document, 'Message') ?? '',
    ...(region !== undefined && /^[a-z0-9-]{1,63}$/.test(region) && { region }),
  };
}

function retryAfter(answer: IncomingMessage): number {
  const seconds = Number(answer.headers['retry-after'] ?? 0);
  return Number.isFinite(seconds) ? Math.min(seconds * 1000, MOST_RETRY_AFTER_MS) : 0;
}
