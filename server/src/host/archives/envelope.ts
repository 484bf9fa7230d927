/**
 * The format of an archive: a tar of named parts, each split into numbered pieces, with a digest at the end.
 *     manifest.json
 *     tree/000000, tree/000001, …      the tree as compressed tar, split into pieces
 *     memory/NAME/000000, …            files of the memory image, each compressed
 *     sha256.json                      digest of every byte before it, and its signature
 *
 * Given parts have exactly one encoding, and the reader accepts no other: a different bit anywhere is
 * refused, also in headers and padding.
 */
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { createHash } from 'node:crypto';
import { byteReader, TruncatedError } from '../../lib/byte-reader.ts';
import { BLOCK, decodeHeader, paddingOf } from '../../lib/tar/header.ts';
import { fileHeader, packFile, TAR_END_BYTES, tarEnd } from '../../lib/tar/pack.ts';

/** Size of a piece. A longer one is refused before it is buffered. */
const PIECE_BYTES = 1024 * 1024;
const MANIFEST = 'manifest.json';
const DIGEST = 'sha256.json';
/** Enough numbers for a compressed stream of 900 terabytes. */
const pieceName = (part: string, index: number) => `${part}/${String(index).padStart(6, '0')}`;

export interface Part {
  name: string;
  content: AsyncIterable<Uint8Array>;
}

/** With `sign` the digest is signed, and the signature is stored next to it. */
export async function* writeEnvelope(
  manifest: Uint8Array,
  parts: AsyncIterable<Part> | Iterable<Part>,
  sign?: (digest: string) => string,
): AsyncGenerator<Uint8Array, void, undefined> {
  const hash = createHash('sha256');
  function* entry(name: string, content: Uint8Array): Generator<Uint8Array, void, undefined> {
    for (const bytes of packFile(name, content)) {
      hash.update(bytes);
      yield bytes;
    }
  }
  yield* entry(MANIFEST, manifest);
  for await (const { name, content } of parts) {
    let index = 0;
    for await (const piece of pieces(content)) yield* entry(pieceName(name, index++), piece);
  }
  const sha256 = hash.copy().digest('hex');
  yield* entry(DIGEST, digestText({ sha256, ...(sign && { signature: sign(sha256) }) }));
  yield tarEnd();
}

/** The digest of everything before it. */
export interface Digest {
  sha256: string;
  signature?: string | undefined;
}

export interface EnvelopeReader {
  /** Must be read first. */
  manifest(maxBytes: number): Promise<Buffer>;
  /** The next part, which must have this name and be read to its end before the next. */
  part(name: string): AsyncIterable<Uint8Array>;
  /**
   * Checks the digest and that nothing follows. Content is not trustworthy before this resolves. The
   * signature is not checked.
   */
  end(): Promise<Digest>;
  close(): Promise<void>;
}

/** Every defect rejects with `invalid_argument`. */
export function readEnvelope(source: AsyncIterable<Uint8Array>): EnvelopeReader {
  const hash = createHash('sha256');
  const reader = byteReader(source);
  let ahead: { name: string; size: number; bytes: Buffer } | undefined;

  async function take(length: number): Promise<Buffer> {
    const bytes = await reader.exactly(length).catch((error: Error) => {
      throw error instanceof TruncatedError ? damaged(error.message) : error;
    });
    if (bytes.length < length) throw damaged(new TruncatedError().message);
    return bytes;
  }

  /** Reads the next header without consuming it. */
  async function peek() {
    if (ahead) return ahead;
    const bytes = await take(BLOCK);
    let name: string, size: number;
    try {
      ({ name, sizeBytes: size } = decodeHeader(bytes, {}));
    } catch (error) {
      throw damaged(systemReason(error));
    }
    if (!fileHeader(name, size).equals(bytes)) throw damaged('a header is not as it is written');
    return (ahead = { name, size, bytes });
  }

  async function content(maxBytes: number): Promise<Buffer> {
    const { size, bytes, name } = await peek();
    if (size > maxBytes) throw damaged(`"${name}" is larger than ${maxBytes} bytes`);
    ahead = undefined;
    const content = await take(size);
    const padding = await take(paddingOf(size));
    if (padding.some((byte) => byte !== 0)) throw damaged('its padding is not empty');
    if (name !== DIGEST) for (const part of [bytes, content, padding]) hash.update(part);
    return content;
  }

  async function expect(name: string): Promise<void> {
    const found = (await peek()).name;
    if (found !== name) throw damaged(`"${found}" is where "${name}" should be`);
  }

  return {
    async manifest(maxBytes) {
      await expect(MANIFEST);
      return content(maxBytes);
    },
    async *part(name) {
      await expect(pieceName(name, 0));
      for (let index = 0; (await peek()).name === pieceName(name, index); index++)
        yield await content(PIECE_BYTES);
    },
    async end() {
      await expect(DIGEST);
      const found = await content(BLOCK);
      const digest = { sha256: hash.digest('hex'), ...signatureIn(found) };
      if (!found.equals(digestText(digest))) throw damaged('its digest is another');
      if ((await take(TAR_END_BYTES)).some((byte) => byte !== 0)) throw damaged('its end is not empty');
      if ((await reader.some(1)).length > 0) throw damaged('something follows its end');
      return digest;
    },
    close: () => reader.close(),
  };
}

export function damaged(why: string, cause?: unknown): CayError {
  return new CayError('invalid_argument', `The archive is damaged: ${why}`, { cause });
}

const digestText = (digest: Digest) => Buffer.from(`${JSON.stringify(digest)}\n`);

function signatureIn(text: Buffer): { signature?: string } {
  const [, signature] = /,"signature":"([A-Za-z0-9_-]{1,128})"}\n$/.exec(text.toString('latin1')) ?? [];
  return signature === undefined ? {} : { signature };
}

/** Splits into pieces of one size except the last; at least one. */
async function* pieces(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  let held: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of content) {
    for (let at = 0; at < chunk.length;) {
      const part = chunk.subarray(at, at + PIECE_BYTES - length);
      held.push(part);
      length += part.length;
      at += part.length;
      if (length < PIECE_BYTES) continue;
      yield Buffer.concat(held);
      held = [];
      length = 0;
    }
  }
  yield Buffer.concat(held);
}
