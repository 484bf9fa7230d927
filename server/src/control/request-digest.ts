import { createHash } from 'node:crypto';

/** Tells one request from another. The order in which an object's members were written makes no difference. */
export function requestDigest(request: unknown): string {
  return createHash('sha256').update(JSON.stringify(request, ordered)).digest('hex');
}

function ordered(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
