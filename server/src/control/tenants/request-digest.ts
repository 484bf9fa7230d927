import { createHash } from 'node:crypto';
import type { SealedBox } from '../../lib/sealed-box.ts';

/**
 * Tells one request from another. The order in which an object's members were written makes no difference.
 * Who has the digest and not the key cannot find out by trying what was in the request, such as a short
 * secret in the environment.
 */
export function requestDigest(request: unknown, box: SealedBox): string {
  return box.digest(plainDigest(request));
}

/** Whether a recorded digest is of this request. Earlier versions have recorded it without the key. */
export function isDigestOf(recorded: string, request: unknown, box: SealedBox): boolean {
  const plain = plainDigest(request);
  return recorded === box.digest(plain) || recorded === plain;
}

function plainDigest(request: unknown): string {
  return createHash('sha256').update(JSON.stringify(request, ordered)).digest('hex');
}

function ordered(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
