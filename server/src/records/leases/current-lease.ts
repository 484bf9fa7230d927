import { AsyncLocalStorage } from 'node:async_hooks';
import type { Lease } from '../tables/leases.ts';

const current = new AsyncLocalStorage<{ lease: Lease | undefined }>();

/**
 * Runs an operation with a lease. Every write to the records that the operation causes, however deep, is
 * guarded by the lease: it is recorded only if this server has not lost it. What the operation leaves to the
 * background is guarded until the operation ends, and not after.
 */
export async function withLease<T>(lease: Lease, operation: () => Promise<T>): Promise<T> {
  const scope: { lease: Lease | undefined } = { lease };
  try {
    return await current.run(scope, operation);
  } finally {
    scope.lease = undefined;
  }
}

/** For what an operation does after it has deleted its sandbox, and the lease with it. */
export function withoutLease<T>(work: () => Promise<T>): Promise<T> {
  return current.run({ lease: undefined }, work);
}

/** The lease of the operation that is running, if it has one. */
export function currentLease(): Lease | undefined {
  return current.getStore()?.lease;
}
