import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from 'node:zlib';
import { unquoted } from './upload.ts';

/** Compares what is read with a checksum of the whole object. */
export interface Verifier {
  update(chunk: Uint8Array): void;
  /** What does not match, or `undefined`. */
  mismatch(): string | undefined;
}

/** By the best checksum that the server has, or `undefined` if it has none that is understood. */
export function verifierFor(headers: IncomingHttpHeaders): Verifier | undefined {
  const isComposite = headers['x-amz-checksum-type'] === 'COMPOSITE';
  const crc = headers['x-amz-checksum-crc32'];
  if (typeof crc === 'string' && !isComposite && /^[A-Za-z0-9+/]{6}==$/.test(crc)) return crcVerifier(crc);
  const sha = headers['x-amz-checksum-sha256'];
  if (typeof sha === 'string' && !isComposite && /^[A-Za-z0-9+/]{43}=$/.test(sha))
    return hashVerifier('sha256', 'base64', sha);
  const etag = unquoted(headers.etag);
  const encryption = headers['x-amz-server-side-encryption'] ?? 'AES256';
  const isMd5 = /^[0-9a-f]{32}$/.test(etag) && encryption === 'AES256';
  const ownKey = headers['x-amz-server-side-encryption-customer-algorithm'] !== undefined;
  return isMd5 && !ownKey ? hashVerifier('md5', 'hex', etag) : undefined;
}

function crcVerifier(expected: string): Verifier {
  let crc = 0;
  return {
    update: (chunk) => void (crc = crc32(chunk, crc)),
    mismatch() {
      const found = Buffer.alloc(4);
      found.writeUInt32BE(crc >>> 0);
      return found.toString('base64') === expected ? undefined : 'CRC-32';
    },
  };
}

function hashVerifier(algorithm: 'sha256' | 'md5', encoding: 'base64' | 'hex', expected: string): Verifier {
  const hash = createHash(algorithm);
  return {
    update: (chunk) => void hash.update(chunk),
    mismatch: () =>
      hash.digest(encoding) === expected ? undefined : algorithm === 'md5' ? 'MD5' : 'SHA-256',
  };
}
