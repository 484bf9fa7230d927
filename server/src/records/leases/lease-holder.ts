import { CayError, isCayError } from '@cay/sdk/protocol';
import { inBackground } from '../../lib/in-background.ts';
import type { Records, Transaction } from '../records.ts';
import type { Lease } from '../tables/leases.ts';

/**
 * The leases of one run of a server. It renews them while operations run. Operations of one sandbox that this
 * server lets run side by side share one lease: it is released with the last of them.
 */
export interface LeaseHolder {
  /**
   * In the transaction that records the intent. Counts from the commit on. Rejects `conflict` while another
   * server has the lease.
   */
  acquire(tx: Transaction, sandbox: string, operation: string): Promise<HeldLease>;
  /** Releases all leases. */
  close(): Promise<void>;
}

export interface HeldLease {
  /** For `guardedBy`. */
  readonly lease: Lease;
  /** Aborts, with the reason, when another server has taken the lease over. */
  readonly signal: AbortSignal;
  /** Once. In the transaction that records the result, or in one of its own. */
  release(tx?: Transaction): Promise<void>;
}

export interface LeaseHolderOptions {
  /** Another one for every start of a server. */
  holder: string;
  /** How long a lease lasts that is not renewed. It is renewed three times as often. */
  ttlMs: number;
  onError(error: unknown): void;
}

interface Held {
  lease: Lease;
  operations: number;
  lost: AbortController;
  timer: NodeJS.Timeout;
  isRenewing: boolean;
}

export function leaseHolder(records: Records, { holder, ttlMs, onError }: LeaseHolderOptions): LeaseHolder {
  const held = new Map<string, Held>();

  async function renew(sandbox: string, entry: Held): Promise<void> {
    // A slow database must not get the same question again and again.
    if (entry.isRenewing) return;
    entry.isRenewing = true;
    try {
      await records.leases.renew(entry.lease, ttlMs);
    } catch (error) {
      if (held.get(sandbox) !== entry) return;
      // A database that is away for a moment takes no lease from us: only another holder does.
      if (!isCayError(error, 'conflict')) return onError(error);
      forget(sandbox, entry);
      entry.lost.abort(error);
    } finally {
      entry.isRenewing = false;
    }
  }

  function forget(sandbox: string, entry: Held): void {
    clearInterval(entry.timer);
    if (held.get(sandbox) === entry) held.delete(sandbox);
  }

  function started(lease: Lease): Held {
    const known = held.get(lease.sandbox);
    if (known?.lease.fence === lease.fence) {
      known.operations++;
      return known;
    }
    if (known) {
      forget(lease.sandbox, known);
      known.lost.abort(new CayError('conflict', `The lease of sandbox "${lease.sandbox}" has expired`));
    }
    const entry: Held = {
      lease,
      operations: 1,
      lost: new AbortController(),
      isRenewing: false,
      timer: setInterval(() => inBackground(renew(lease.sandbox, entry), onError), ttlMs / 3).unref(),
    };
    held.set(lease.sandbox, entry);
    return entry;
  }

  return {
    async acquire(tx, sandbox, operation) {
      const lease = await tx.leases.acquire({ sandbox, holder, operation, ttlMs });
      let entry: Held | undefined;
      tx.afterCommit(() => (entry = started(lease)));
      const current = () => {
        if (entry) return entry;
        throw new CayError('internal', 'A lease counts when its transaction is committed');
      };
      return {
        lease,
        get signal() {
          return current().lost.signal;
        },
        async release(on) {
          const ending = current();
          const end = () => {
            if (--ending.operations === 0) forget(sandbox, ending);
          };
          try {
            await (on ?? records).leases.release(lease);
          } catch (error) {
            // It is not renewed any more, and expires.
            if (!on) end();
            throw error;
          }
          if (on) on.afterCommit(end);
          else end();
        },
      };
    },
    async close() {
      for (const [sandbox, entry] of held) forget(sandbox, entry);
      await records.leases.releaseAll(holder);
    },
  };
}
