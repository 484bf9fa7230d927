/**
 * Reads an object in order. A large one is asked for in ranges, several at once, which are held in memory
 * until it is their turn. A range that breaks goes on at the byte where it broke.
 */
import type { IncomingMessage } from 'node:http';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { discard } from '../lib/http-body.ts';
import type { BucketObject, GetOptions } from './bucket.ts';
import { verifierFor, type Verifier } from './checksum.ts';
import type { S3Client, S3Request } from './client.ts';
import { PART_BYTES } from './part-size.ts';
import { unquoted } from './upload.ts';

export interface DownloadOptions extends GetOptions {
  /** Ranges that are read at once. */
  parallel: number;
  /** How long the server may be silent. */
  stallMs: number;
  /** How often one range may break without a byte in between. */
  breaks: number;
}

const CHECKS = { 'x-amz-checksum-mode': 'ENABLED' };

export async function* download(
  client: S3Client,
  key: string,
  options: DownloadOptions,
): AsyncGenerator<Buffer, void> {
  const { object, signal } = options;
  signal?.throwIfAborted();
  const known = object && object.sizeBytes <= PART_BYTES ? object : undefined;
  const facts = known ? { object: known, verifier: undefined } : await look(client, key, options);
  let { verifier } = facts;
  const { etag, sizeBytes } = facts.object;
  let left = sizeBytes;
  const pieces =
    sizeBytes <= PART_BYTES
      ? readRange(client, key, { from: 0, to: sizeBytes, whole: true, etag, ...options }, (headers) => {
          verifier ??= verifierFor(headers);
        })
      : readRanges(client, key, sizeBytes, etag, options);
  for await (const chunk of pieces) {
    left -= chunk.length;
    if (left < 0) throw damaged(key, 'it is longer than announced');
    verifier?.update(chunk);
    yield chunk;
  }
  const wrong = left > 0 ? 'it is shorter than announced' : mismatchOf(verifier);
  if (wrong !== undefined) throw damaged(key, wrong);
}

async function look(
  client: S3Client,
  key: string,
  { object, signal }: DownloadOptions,
): Promise<{ object: BucketObject; verifier: Verifier | undefined }> {
  const answer = await client.send({
    what: `look at "${key}" in`,
    method: 'HEAD',
    key,
    headers: CHECKS,
    expect: [404],
    signal,
  });
  discard(answer);
  if (answer.statusCode === 404) throw new CayError('not_found', `There is no object "${key}" in the bucket`);
  const found = objectOf(key, answer);
  if (object && object.etag !== found.etag) throw changed(key);
  return { object: found, verifier: verifierFor(answer.headers) };
}

export function objectOf(key: string, { headers }: IncomingMessage): BucketObject {
  const sizeBytes = Number(headers['content-length'] ?? Number.NaN);
  if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
    throw new CayError('unavailable', `The server does not say how long "${key}" is`);
  const modified = Date.parse(headers['last-modified'] ?? '');
  return {
    key,
    sizeBytes,
    etag: unquoted(headers.etag),
    modifiedAtMs: Number.isNaN(modified) ? 0 : modified,
  };
}

/** The ranges in order, each collected before it is given on. */
async function* readRanges(
  client: S3Client,
  key: string,
  sizeBytes: number,
  etag: string,
  options: DownloadOptions,
): AsyncGenerator<Buffer, void> {
  const stop = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  const coming: Promise<Buffer[]>[] = [];
  let next = 0;
  const ask = () => {
    const range = { from: next, to: Math.min(next + PART_BYTES, sizeBytes), whole: false, etag };
    next = range.to;
    const collected = Array.fromAsync(readRange(client, key, { ...options, ...range, signal }));
    // It is awaited later, or never if an earlier one fails.
    collected.catch(() => {});
    coming.push(collected);
  };
  try {
    while (next < sizeBytes && coming.length < options.parallel) ask();
    for (let first = coming.shift(); first !== undefined; first = coming.shift()) {
      const chunks = await first;
      if (next < sizeBytes) ask();
      yield* chunks;
    }
  } finally {
    stop.abort(new CayError('cancelled', 'The reader has stopped'));
  }
}

/** Some bytes of an object of this ETag. */
export async function readSome(
  client: S3Client,
  { key, etag }: BucketObject,
  range: { from: number; to: number },
  options: DownloadOptions,
): Promise<Buffer> {
  if (range.to <= range.from) return Buffer.alloc(0);
  return Buffer.concat(
    await Array.fromAsync(readRange(client, key, { ...options, ...range, whole: false, etag })),
  );
}

interface Range {
  from: number;
  /** Behind the last byte. */
  to: number;
  /** Whether it is the object, asked for without a range: then servers tell its checksum. */
  whole: boolean;
  etag: string;
}

async function* readRange(
  client: S3Client,
  key: string,
  { from, to, whole, etag, signal, stallMs, breaks }: Range & DownloadOptions,
  onHeaders?: (headers: IncomingMessage['headers']) => void,
): AsyncGenerator<Buffer, void> {
  let at = from;
  for (let broken = 0; ;) {
    const isRange = !whole || at > from;
    const request: S3Request = {
      what: `read "${key}" of`,
      method: 'GET',
      key,
      headers: {
        ...(isRange ? { range: `bytes=${at}-${to - 1}` } : CHECKS),
        ...(etag !== '' && { 'if-match': `"${etag}"` }),
      },
      signal,
    };
    const answer = await client.send(request).catch((error: unknown) => {
      throw isCayError(error, 'conflict') ? changed(key) : isGone(error) ? gone(key, error) : error;
    });
    try {
      if (isRange && answer.statusCode !== 206)
        throw new CayError('unsupported', `The server of the bucket does not read ranges of "${key}"`);
      if (!isRange) onHeaders?.(answer.headers);
      for await (const chunk of unlessSilent(answer, stallMs)) {
        at += chunk.length;
        if (at > to) throw damaged(key, 'the server sends more than was asked for');
        if (chunk.length > 0) broken = 0;
        yield chunk;
      }
      if (at === to) return;
      throw new Error('the answer is shorter than announced');
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (error instanceof CayError) throw error;
      if (at === to) return;
      if (++broken > breaks)
        throw new CayError('unavailable', `Cannot read "${key}": the connection breaks again and again`, {
          cause: error,
        });
    } finally {
      answer.destroy();
    }
  }
}

/** Ends a body that sends nothing while it is read. The time that the reader takes does not count. */
async function* unlessSilent(answer: IncomingMessage, stallMs: number): AsyncGenerator<Buffer, void> {
  const wait = () => setTimeout(() => answer.destroy(new Error(`silent for ${stallMs} ms`)), stallMs);
  let timer = wait();
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      clearTimeout(timer);
      yield chunk;
      timer = wait();
    }
  } finally {
    clearTimeout(timer);
  }
}

function mismatchOf(verifier: Verifier | undefined): string | undefined {
  const wrong = verifier?.mismatch();
  return wrong === undefined ? undefined : `its ${wrong} is another`;
}

function isGone(error: unknown): boolean {
  return isCayError(error, 'not_found') && error.details?.['s3Code'] !== 'NoSuchBucket';
}

function damaged(key: string, why: string): CayError {
  return new CayError('unavailable', `"${key}" came damaged from the bucket: ${why}`, {
    details: { damaged: true },
  });
}

function changed(key: string): CayError {
  return new CayError('conflict', `"${key}" changed in the bucket while it was read`);
}

function gone(key: string, cause: unknown): CayError {
  return new CayError('not_found', `There is no object "${key}" in the bucket`, { cause });
}
