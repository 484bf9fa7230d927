/**
 * Puts an object: in one request if it fits into a part, otherwise in parts, several at once. Parts are held
 * in memory until the server has them, so that each can be sent again.
 */
import { createHash, type Hash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { CayError } from '@cay/sdk/protocol';
import { discard } from '../lib/http-body.ts';
import { ownText } from '../lib/own-text.ts';
import type { BucketObject, PutOptions } from './bucket.ts';
import type { S3Client } from './client.ts';
import { partBytes } from './part-size.ts';
import { escaped, textOf } from './xml.ts';

export interface UploadOptions extends PutOptions {
  /** Parts that are sent at once. */
  parallel: number;
  /** Reports that a broken upload could not be taken back. */
  onError(error: unknown): void;
}

interface Part {
  chunks: Uint8Array[];
  length: number;
  sha256: Hash;
  crc: number;
}

interface SentPart {
  number: number;
  etag: string;
  crc: string;
}

/** How long taking back a broken upload may take. */
const ABORT_MS = 30_000;
/** A server may put the parts together before it answers. */
const FINISH_MS = 15 * 60_000;

export async function upload(
  client: S3Client,
  key: string,
  content: AsyncIterable<Uint8Array>,
  options: UploadOptions,
): Promise<BucketObject> {
  const { signal, sizeBytes } = options;
  signal?.throwIfAborted();
  const parts = partsOf(content, sizeBytes, signal);
  try {
    const first = await parts.next();
    const whole = first.done ? newPart() : first.value;
    if (whole.length < partBytes(0, sizeBytes)) return await putWhole(client, key, whole, options);
    return await putParts(client, key, whole, parts, options);
  } finally {
    await parts.return();
  }
}

async function putWhole(
  client: S3Client,
  key: string,
  part: Part,
  { ifAbsent, ifMatch, signal, sizeBytes }: UploadOptions,
): Promise<BucketObject> {
  requireLength(key, part.length, sizeBytes);
  const answer = await client.send({
    what: `write "${key}" to`,
    method: 'PUT',
    key,
    headers: { 'x-amz-checksum-crc32': base64(part.crc), ...conditions(ifAbsent, ifMatch) },
    body: part.chunks,
    sha256: part.sha256.digest('hex'),
    signal,
  });
  discard(answer);
  return { key, sizeBytes: part.length, etag: unquoted(answer.headers.etag), modifiedAtMs: Date.now() };
}

async function putParts(
  client: S3Client,
  key: string,
  first: Part,
  rest: AsyncGenerator<Part, void>,
  options: UploadOptions,
): Promise<BucketObject> {
  const { parallel, onError, sizeBytes } = options;
  const { uploadId, checks } = await begin(client, key, options.signal);
  const failed = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal;
  const sent: SentPart[] = [];
  const sending = new Set<Promise<void>>();
  let failure: { error: unknown } | undefined;
  let bytes = 0;
  let crc = 0;

  function send(number: number, part: Part): void {
    const task = sendPart(client, key, { uploadId, number, part, checks, signal })
      .then((done) => void sent.push(done))
      .catch((error: unknown) => {
        failure ??= { error };
        failed.abort(error);
      })
      .finally(() => sending.delete(task));
    sending.add(task);
  }

  try {
    let part: Part | undefined = first;
    for (let number = 1; part !== undefined; number++) {
      bytes += part.length;
      for (const chunk of part.chunks) crc = crc32(chunk, crc);
      send(number, part);
      // What is held: those that are being sent, and the one that is being filled.
      while (sending.size >= parallel) await Promise.race(sending);
      if (failure) throw failure.error;
      const next = await rest.next();
      part = next.done ? undefined : next.value;
    }
    await Promise.all(sending);
    if (failure) throw failure.error;
    requireLength(key, bytes, sizeBytes);
    const etag = await finish(
      client,
      key,
      { uploadId, sent, bytes, crc: checks ? base64(crc) : undefined },
      options,
    );
    return { key, sizeBytes: bytes, etag, modifiedAtMs: Date.now() };
  } catch (error) {
    failed.abort(error);
    await Promise.all(sending);
    await abortUpload(client, { key, id: uploadId }, AbortSignal.timeout(ABORT_MS)).catch(onError);
    throw error;
  }
}

/** `checks` is whether the server keeps checksums of parts. */
async function begin(
  client: S3Client,
  key: string,
  signal: AbortSignal | undefined,
): Promise<{ uploadId: string; checks: boolean }> {
  const { answer, document } = await client.document({
    what: `begin to write "${key}" to`,
    method: 'POST',
    key,
    query: { uploads: '' },
    headers: { 'x-amz-checksum-algorithm': 'CRC32', 'x-amz-checksum-type': 'FULL_OBJECT' },
    signal,
  });
  const uploadId = textOf(document, 'UploadId');
  if (uploadId === undefined || uploadId === '' || uploadId.length > 2048)
    throw new CayError('unavailable', `Cannot write "${key}" in parts: the server names no upload`);
  const known = answer.headers['x-amz-checksum-algorithm'] === 'CRC32';
  return { uploadId, checks: known && answer.headers['x-amz-checksum-type'] === 'FULL_OBJECT' };
}

async function sendPart(
  client: S3Client,
  key: string,
  {
    uploadId,
    number,
    part,
    checks,
    signal,
  }: { uploadId: string; number: number; part: Part; checks: boolean; signal: AbortSignal },
): Promise<SentPart> {
  const crc = base64(part.crc);
  const answer = await client.send({
    what: `write part ${number} of "${key}" to`,
    method: 'PUT',
    key,
    query: { partNumber: number, uploadId },
    headers: checks ? { 'x-amz-checksum-crc32': crc } : {},
    body: part.chunks,
    sha256: part.sha256.digest('hex'),
    signal,
  });
  discard(answer);
  return { number, etag: unquoted(answer.headers.etag), crc };
}

async function finish(
  client: S3Client,
  key: string,
  {
    uploadId,
    sent,
    crc,
    bytes,
  }: { uploadId: string; sent: SentPart[]; crc: string | undefined; bytes: number },
  { ifAbsent, ifMatch, signal }: UploadOptions,
): Promise<string> {
  const parts = sent.toSorted((one, other) => one.number - other.number);
  const list = parts.map(({ number, etag, crc: own }) => {
    const check = crc === undefined ? '' : `<ChecksumCRC32>${own}</ChecksumCRC32>`;
    return `<Part><PartNumber>${number}</PartNumber><ETag>"${escaped(etag)}"</ETag>${check}</Part>`;
  });
  const body = Buffer.from(`<CompleteMultipartUpload>${list.join('')}</CompleteMultipartUpload>`);
  const request = {
    what: `finish writing "${key}" to`,
    method: 'POST',
    key,
    query: { uploadId },
    headers: {
      'content-type': 'application/xml',
      ...(crc !== undefined && { 'x-amz-checksum-crc32': crc, 'x-amz-checksum-type': 'FULL_OBJECT' }),
      ...conditions(ifAbsent, ifMatch),
    },
    body: [body],
    patienceMs: FINISH_MS,
    signal,
  } as const;
  const failure = await client.document(request).then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  const gone = failure && (failure.error as CayError).details?.['s3Code'] === 'NoSuchUpload';
  if (failure && !gone) throw failure.error;
  // A document without an error is no proof, and an earlier attempt may have succeeded whose answer was lost.
  const answer = await client.send({
    what: `look at "${key}" in`,
    method: 'HEAD',
    key,
    expect: [404],
    signal,
  });
  discard(answer);
  const etag = unquoted(answer.headers.etag);
  const expected = etagOfParts(parts.map((part) => part.etag));
  const isOurs = answer.headers['content-length'] === String(bytes) && (!gone || etag === expected);
  if (answer.statusCode !== 404 && isOurs) return etag;
  if (failure) throw failure.error;
  throw new CayError('unavailable', `Cannot write "${key}": the server says that it is there, and it is not`);
}

export async function abortUpload(
  client: S3Client,
  { key, id }: { key: string; id: string },
  signal: AbortSignal | undefined,
): Promise<void> {
  const answer = await client.send({
    what: `take back an upload of "${key}" to`,
    method: 'DELETE',
    key,
    query: { uploadId: id },
    expect: [404],
    signal,
  });
  discard(answer);
}

/** Reads the source no faster than parts are taken. */
async function* partsOf(
  content: AsyncIterable<Uint8Array>,
  sizeBytes: number | undefined,
  signal: AbortSignal | undefined,
): AsyncGenerator<Part, void> {
  let part = newPart();
  let number = 0;
  for await (const given of content) {
    signal?.throwIfAborted();
    let chunk = given;
    while (chunk.length > 0) {
      const room = partBytes(number, sizeBytes) - part.length;
      const piece = chunk.subarray(0, room);
      part.chunks.push(piece);
      part.length += piece.length;
      part.sha256.update(piece);
      part.crc = crc32(piece, part.crc);
      chunk = chunk.subarray(piece.length);
      if (piece.length < room) continue;
      yield part;
      part = newPart();
      number++;
    }
  }
  signal?.throwIfAborted();
  if (part.length > 0) yield part;
}

function newPart(): Part {
  return { chunks: [], length: 0, sha256: createHash('sha256'), crc: 0 };
}

function requireLength(key: string, length: number, sizeBytes: number | undefined): void {
  if (sizeBytes === undefined || sizeBytes === length) return;
  throw new CayError(
    'conflict',
    `"${key}" has ${length} bytes, and ${sizeBytes} were announced: it changed meanwhile`,
  );
}

function conditions(ifAbsent: boolean | undefined, ifMatch: string | undefined): Record<string, string> {
  if (ifAbsent) return { 'if-none-match': '*' };
  return ifMatch === undefined ? {} : { 'if-match': `"${ifMatch}"` };
}

/** The ETag that most servers give to an object of parts; `undefined` if the parts' own are no MD5. */
function etagOfParts(etags: readonly string[]): string | undefined {
  if (!etags.every((etag) => /^[0-9a-f]{32}$/.test(etag))) return undefined;
  const hash = createHash('md5');
  for (const etag of etags) hash.update(Buffer.from(etag, 'hex'));
  return `${hash.digest('hex')}-${etags.length}`;
}

export function unquoted(etag: string | undefined): string {
  return ownText((etag ?? '').replace(/^(?:W\/)?"|"$/g, ''), 200);
}

function base64(crc: number): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc >>> 0);
  return bytes.toString('base64');
}
