import { CayError } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/**
 * Leases: which server may change a sandbox. One row for each sandbox.
 *
 * *Terms.* The *holder* is one run of one server: a server that restarts is another holder. The *fence* is a
 * number that grows with every change of holder, which distinguishes a lost lease from the present
 * one. A lease *expires* when it is not renewed in time; another holder may then take it over.
 *
 * *Why a fence.* A server that was suspended for a minute does not know that its lease has expired and was
 * taken over. What it writes afterwards must not count: `guard` compares the fence in the same transaction as
 * the write, and rejects.
 *
 * *Clocks.* Expiry is written and judged by the clock of the database. Clocks of servers do not matter.
 *
 *     const lease = await records.transaction(async (tx) => {
 *       const lease = await tx.leases.acquire({ sandbox, holder, operation: 'rollback', ttlMs: 30_000 });
 *       await tx.sandboxes.update(sandbox, { operation: intent });      // one commit for both
 *       return lease;
 *     });
 *     await backend.rollback(sandbox, snapshot);                        // renewed meanwhile
 *     await records.transaction(
 *       async (tx) => {
 *         await tx.sandboxes.update(sandbox, { operation: null });
 *         await tx.leases.release(lease);
 *       },
 *       { guardedBy: lease },                                           // rejects `conflict` if it was lost
 *     );
 */
export interface Lease {
  sandbox: string;
  holder: string;
  operation: string;
  fence: number;
  /** By the database's clock. */
  expiresAtMs: number;
}

export interface LeaseRequest {
  sandbox: string;
  holder: string;
  /** Shown to callers that are refused. */
  operation: string;
  ttlMs: number;
}

export interface LeaseRecords {
  /**
   * Takes the lease of a sandbox: the first one, one that was released or has expired, with the next fence.
   * The holder that has it already gets it once more, with the same fence, for an operation that may run
   * beside the first. Rejects `conflict` while another holder has it, with `details.holder`,
   * `details.underWay` and `details.expiresInMs`.
   */
  acquire(request: LeaseRequest): Promise<Lease>;
  /** Extends it. Rejects `conflict` if it was released or another holder has taken it over. */
  renew(lease: Lease, ttlMs: number): Promise<Lease>;
  /**
   * Once for each `acquire`: with the last one others may acquire it. Does nothing if the lease was lost.
   */
  release(lease: Lease): Promise<void>;
  /** Lets other holders acquire all leases of a holder, when it shuts down. Resolves how many. */
  releaseAll(holder: string): Promise<number>;
  /**
   * Rejects `conflict` if the lease was released or another holder has taken it over. An expired lease that
   * no holder has taken over passes. In a transaction, no takeover happens before that has ended.
   */
  guard(lease: Lease): Promise<void>;
  get(sandbox: string): Promise<Lease | undefined>;
  /** Whether a server, this one or another, holds the lease of a sandbox now. */
  isHeld(sandbox: string): Promise<boolean>;
  /** Lets other holders acquire all leases of holders whose name begins so. Resolves how many. */
  releaseOf(prefix: string): Promise<number>;
}

interface StoredLease {
  sandbox: string;
  holder: string;
  operation: string;
  fence: number;
  expires_at: number;
}

export function leaseTable({ sql }: TableContext): LeaseRecords {
  const { nowMs, lockRow } = sql.dialect;
  const held = `leases.holder = excluded.holder AND leases.expires_at > ${nowMs}`;
  return {
    async acquire({ sandbox, holder, operation, ttlMs }) {
      const row = await sql.get<StoredLease>(
        `INSERT INTO leases (sandbox, holder, operation, fence, operations, expires_at)
         VALUES (?, ?, ?, 1, 1, ${nowMs} + ?)
         ON CONFLICT (sandbox) DO UPDATE SET holder = excluded.holder, operation = excluded.operation,
           expires_at = excluded.expires_at,
           fence = CASE WHEN ${held} THEN leases.fence ELSE leases.fence + 1 END,
           operations = CASE WHEN ${held} THEN leases.operations + 1 ELSE 1 END
         WHERE leases.expires_at <= ${nowMs} OR leases.holder = excluded.holder
         RETURNING *`,
        sandbox,
        holder,
        operation,
        ttlMs,
      );
      if (row) return parse(row);
      const other = await sql.get<{ holder: string; operation: string; left: number }>(
        `SELECT holder, operation, expires_at - ${nowMs} AS "left" FROM leases WHERE sandbox = ?`,
        sandbox,
      );
      throw new CayError(
        'conflict',
        `Cannot start "${operation}" of sandbox "${sandbox}": another server runs "${other?.operation ?? 'an operation'}" of it`,
        {
          details: {
            sandbox,
            operation,
            holder: other?.holder ?? null,
            underWay: other?.operation ?? null,
            expiresInMs: Math.max(other?.left ?? 0, 0),
          },
          hint: 'wait until that operation has ended, then look at the sandbox again',
        },
      );
    },
    async renew(lease, ttlMs) {
      const row = await sql.get<StoredLease>(
        `UPDATE leases SET expires_at = ${nowMs} + ? WHERE sandbox = ? AND holder = ? AND fence = ? AND expires_at > 0
         RETURNING *`,
        ttlMs,
        lease.sandbox,
        lease.holder,
        lease.fence,
      );
      if (!row) throw lost(lease, undefined);
      return parse(row);
    },
    async release({ sandbox, holder, fence }) {
      await sql.run(
        `UPDATE leases SET operations = operations - 1,
           expires_at = CASE WHEN operations > 1 THEN expires_at ELSE 0 END
         WHERE sandbox = ? AND holder = ? AND fence = ? AND operations > 0`,
        sandbox,
        holder,
        fence,
      );
    },
    releaseAll: (holder) =>
      sql.run('UPDATE leases SET operations = 0, expires_at = 0 WHERE holder = ? AND expires_at > 0', holder),
    async guard(lease) {
      const row = await sql.get<StoredLease>(
        `SELECT * FROM leases WHERE sandbox = ?${lockRow}`,
        lease.sandbox,
      );
      if (row?.holder !== lease.holder || row.fence !== lease.fence || row.expires_at === 0)
        throw lost(lease, row);
    },
    isHeld: async (sandbox) =>
      (await sql.get(`SELECT 1 AS held FROM leases WHERE sandbox = ? AND expires_at > ${nowMs}`, sandbox)) !==
      undefined,
    releaseOf: (prefix) =>
      sql.run(
        'UPDATE leases SET operations = 0, expires_at = 0 WHERE substr(holder, 1, ?) = ? AND expires_at > 0',
        prefix.length,
        prefix,
      ),
    async get(sandbox) {
      const row = await sql.get<StoredLease>('SELECT * FROM leases WHERE sandbox = ?', sandbox);
      return row && parse(row);
    },
  };
}

function lost({ sandbox, operation, fence }: Lease, now: StoredLease | undefined): CayError {
  return new CayError(
    'conflict',
    `Cannot finish "${operation}" of sandbox "${sandbox}": this server has lost its lease`,
    {
      details: { sandbox, operation, fence, leaseLost: true, ...(now && { currentFence: now.fence }) },
      hint: 'look at the sandbox again: another server may have finished or undone the operation',
    },
  );
}

function parse(row: StoredLease): Lease {
  return {
    sandbox: row.sandbox,
    holder: row.holder,
    operation: row.operation,
    fence: row.fence,
    expiresAtMs: row.expires_at,
  };
}
