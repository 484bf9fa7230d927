/**
 * The order of the changes of a sandbox: one after the other, those of different sandboxes side by side.
 *
 * Waiting is right where the outcome is the same whenever the change happens. It is wrong where the caller
 * decided by what it saw, such as a rollback after another caller's rollback. Such operations are claimed for
 * their whole length, and the later of two that exclude each other is rejected. A removal is never rejected:
 * whatever the sandbox becomes, the caller wants it gone.
 *
 * Where several servers may use the records, an operation holds the lease of its sandbox. While another
 * server holds it the operation is rejected with `conflict`, and what an operation writes after it lost its
 * lease is not recorded. Where no other server can open the records, the queue alone is enough.
 */
import { CayError, isCayError } from '@cay/sdk/protocol';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { withLease, withoutLease } from '../../records/leases/current-lease.ts';
import type { HeldLease, LeaseHolder } from '../../records/leases/lease-holder.ts';
import type { Records, Transaction } from '../../records/records.ts';

const OPERATIONS = {
  snapshot: 'reads',
  turn: 'reads',
  compare: 'reads',
  fork: 'reads',
  rollback: 'changes',
  pause: 'changes',
  move: 'changes',
  remove: 'changes',
} as const;
export type Operation = keyof typeof OPERATIONS;

export interface Operations {
  /**
   * Runs the task in the sandbox's queue, after all tasks that were enqueued before it. `name` is shown to
   * callers of other servers that are refused meanwhile.
   */
  enqueue<T>(id: string, task: () => Promise<T>, name?: string): Promise<T>;
  /**
   * In the transaction that inserts a sandbox, before its first operation is enqueued: a server that starts
   * in between leaves the sandbox to this one. Resolves a function that releases it. Call that once, after
   * the commit.
   */
  hold(tx: Transaction, id: string, name: string): Promise<() => Promise<void>>;
  /**
   * Claims the sandbox for an operation until the task settles. The task is not in the queue; it enqueues
   * what changes the sandbox.
   *
   * Operations that only read go together, and so do removals. A removal waits for the others, and aborts
   * their signal so that they need not wait for commands first. Rejects `conflict` for any other pair.
   */
  claim<T>(id: string, operation: Operation, task: (signal: AbortSignal) => Promise<T>): Promise<T>;
}

export interface OperationsOptions {
  records: Records;
  leases?: LeaseHolder | undefined;
  onError(error: unknown): void;
}

interface Claim {
  operation: Operation;
  controller: AbortController;
  settled: Promise<void>;
}

export function openOperations({ records, leases, onError }: OperationsOptions): Operations {
  const queue = new KeyedQueue<string>();
  const claims = new Map<string, Set<Claim>>();

  /** Runs the task with the lease of the sandbox. A sandbox that is not recorded has none. */
  async function leased<T>(id: string, name: string, task: () => Promise<T>): Promise<T> {
    if (!leases) return task();
    const held = await acquire(leases, id, name);
    if (!held) return task();
    try {
      return await withLease(held.lease, task);
    } finally {
      await release(held);
    }
  }

  /** A lease that cannot be released expires. */
  const release = (held: HeldLease): Promise<void> => withoutLease(() => held.release()).catch(onError);

  const acquire = (from: LeaseHolder, id: string, name: string): Promise<HeldLease | undefined> =>
    records.transaction(async (tx) =>
      (await tx.sandboxes.get(id)) ? from.acquire(tx, id, name) : undefined,
    );

  /** Waits for the operations that were claimed before. None can be claimed after it. */
  async function othersSettled(id: string, others: Claim[]): Promise<void> {
    for (const { controller, operation } of others) controller.abort(conflict(id, operation, 'remove'));
    await Promise.all(others.map(({ settled }) => settled));
  }

  return {
    enqueue: (id, task, name = 'change') => queue.run(id, () => leased(id, name, task)),

    async hold(tx, id, name) {
      const held = await leases?.acquire(tx, id, name);
      return async () => {
        if (held) await release(held);
      };
    },

    async claim(id, operation, task) {
      const underWay = [...(claims.get(id) ?? [])];
      const excluding = underWay.filter((other) => !goTogether(other.operation, operation));
      if (operation !== 'remove' && excluding[0]) throw conflict(id, operation, excluding[0].operation);
      const { promise: settled, resolve } = Promise.withResolvers<void>();
      const claim: Claim = { operation, controller: new AbortController(), settled };
      const claimed = claims.get(id) ?? new Set();
      claims.set(id, claimed.add(claim));
      try {
        if (excluding.length > 0) await othersSettled(id, excluding);
        return await leased(id, operation, () => task(claim.controller.signal));
      } finally {
        claimed.delete(claim);
        if (claimed.size === 0) claims.delete(id);
        resolve();
      }
    },
  };
}

/** Whether an operation was refused because another server changes the sandbox. */
export function isLeasedElsewhere(error: unknown): boolean {
  return isCayError(error, 'conflict') && error.details['holder'] !== undefined;
}

/**
 * Whether an operation could not be recorded because another server has taken it over. What the backend has
 * is that server's now: it must not be undone.
 */
export function isLeaseLost(error: unknown): boolean {
  return isCayError(error, 'conflict') && error.details['leaseLost'] === true;
}

function goTogether(one: Operation, other: Operation): boolean {
  return (
    (OPERATIONS[one] === 'reads' && OPERATIONS[other] === 'reads') || (one === 'remove' && other === 'remove')
  );
}

function conflict(id: string, operation: Operation, underWay: Operation): CayError {
  return new CayError(
    'conflict',
    `Cannot ${operation} sandbox "${id}": another operation (${underWay}) is under way`,
    { details: { operation, underWay }, hint: 'read the sandbox again, then decide' },
  );
}
