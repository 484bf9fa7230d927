import { CayError } from '@cay/sdk/protocol';
import type { RecordSet, Transaction } from './records.ts';

export interface OnceCall {
  project: string;
  /** Without a key it is made every time. */
  key: string | undefined;
  request: unknown;
}

/**
 * Makes something and remembers its idempotency key in one transaction, or finds what the key made before.
 * Rejects `conflict` if the key was used for another request, `not_found` if what it made is gone.
 */
export function once<T>(
  records: RecordSet,
  { project, key, request }: OnceCall,
  operation: {
    make(tx: Transaction): Promise<{ id: string; value: T }>;
    find(tx: Transaction, id: string): Promise<T | undefined>;
  },
): Promise<{ value: T; repeated: boolean }> {
  return records.transaction(async (tx) => {
    if (key === undefined) return { value: (await operation.make(tx)).value, repeated: false };
    const id = await tx.idempotency.find(project, key, request);
    if (id === undefined) {
      const made = await operation.make(tx);
      await tx.idempotency.remember(project, key, request, made.id);
      return { value: made.value, repeated: false };
    }
    const value = await operation.find(tx, id);
    if (value !== undefined) return { value, repeated: true };
    throw new CayError(
      'not_found',
      `What was made with idempotency key "${key}" ("${id}") does not exist any more`,
      { hint: 'use a new key to make another' },
    );
  });
}
