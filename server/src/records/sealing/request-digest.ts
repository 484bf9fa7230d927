import { createHash } from 'node:crypto';
import type { SealedBox } from '../../lib/sealed-box.ts';

/**
 * A digest of a request. The order of an object's members makes no difference. It is keyed, so a digest alone
 * does not allow to guess a short secret in the environment of the request.
 */
export function requestDigest(request: unknown, box: SealedBox): string {
  return box.digest(plainDigest(request));
}

/** Whether a recorded digest is of this request. Earlier versions recorded it without the key. */
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
