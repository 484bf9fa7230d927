import { CayError } from '@cay/sdk/protocol';
import type { Records, Transaction } from '../../records/records.ts';
import { countedRows } from './counted-rows.ts';
import type { QuotaLedger } from './quota-ledger.ts';

export interface Keyed {
  /** Makes a call repeatable: the same key and request resolve what the first call made. */
  idempotencyKey?: string;
}

/**
 * What calls with an idempotency key have made, so that a repeated call makes nothing. A key belongs to a
 * project, whatever it makes there. Only digests of keys and requests are kept.
 */
export interface Idempotency {
  /**
   * Rejects `resource_exhausted` if the project has as many keys as it may. `remember` calls it; a call that
   * makes something before it remembers the key calls it first.
   */
  requireRoom(project: string): Promise<void>;
  /** In the transaction that makes it. */
  remember(tx: Transaction, project: string, key: string, request: unknown, made: string): Promise<void>;
  /**
   * Makes something and remembers it in one transaction, or finds what was made before. Rejects `not_found`
   * if that was removed, `conflict` if the key was used for another request.
   */
  once<T>(call: OnceCall, operation: OnceOperation<T>): Promise<{ value: T; repeated: boolean }>;
}

interface OnceCall {
  project: string;
  /** Without a key it is made every time. */
  key: string | undefined;
  request: unknown;
}

/** Both are bodies of a transaction, and may run more than once. */
interface OnceOperation<T> {
  make(tx: Transaction): Promise<{ id: string; value: T }>;
  again(tx: Transaction, id: string): Promise<T | undefined>;
}

/** A full quota refuses a new key, rather than delete an older one, whose call could then run twice. */
export function openIdempotency(
  records: Records,
  quota: Pick<QuotaLedger, 'counts' | 'requireRoom'>,
): Idempotency {
  const rows = countedRows((project, on) => on.idempotency.count(project));
  quota.counts('idempotencyKeys', 'calls', rows.of);
  const idempotency: Idempotency = {
    requireRoom: (project) => quota.requireRoom(records, project, 'idempotencyKeys', 1),
    async remember(tx, project, key, request, made) {
      await quota.requireRoom(tx, project, 'idempotencyKeys', 1);
      await tx.idempotency.remember(project, key, request, made);
      tx.afterCommit(() => rows.added(project));
    },
    once: ({ project, key, request }, operation) =>
      records.transaction(async (tx) => {
        if (key === undefined) return { value: (await operation.make(tx)).value, repeated: false };
        const id = await tx.idempotency.find(project, key, request);
        if (id === undefined) {
          const made = await operation.make(tx);
          await idempotency.remember(tx, project, key, request, made.id);
          return { value: made.value, repeated: false };
        }
        const value = await operation.again(tx, id);
        if (value !== undefined) return { value, repeated: true };
        throw new CayError(
          'not_found',
          `What was made with idempotency key "${key}" ("${id}") does not exist any more`,
          { hint: 'use a new key to make another' },
        );
      }),
  };
  return idempotency;
}
