import type { EventAppender, EventRecords } from './events/events.ts';
import type { Lease } from './tables/leases.ts';
import type { Tables } from './tables/tables.ts';

/**
 * Records: what the control plane knows and must not forget. Sandboxes, snapshots, projects, keys, events,
 * leases and the rest, each a table with verbs of its own.
 *
 * *Terms.* A *record* is a row. A *transaction* is a unit of work: all of its writes are committed, or none
 * is. A *driver* keeps the records in one kind of database: `sqlite/` in files of the data directory (the
 * default, for one server), `postgres/` in a PostgreSQL database (for one server or several). Both run the
 * same SQL from `tables/`, and pass `test/conformance/records-suite.ts`.
 *
 * *Who calls, how often.* The control plane, for every request: a request reads the key, the sandbox and the
 * token epoch. Each change of a sandbox is two or three transactions: the intent before the operation, the
 * result after it. Nothing polls.
 *
 * *Cost.* SQLite: a read takes microseconds and blocks the event loop for that long; a commit waits for the
 * disk (about 0.3 ms). PostgreSQL: one round trip for each call, and two more for a transaction. So read what
 * you need once, and put writes that belong together into one transaction.
 *
 * *Durability.* A transaction that has resolved is on the disk, whatever happens to the process or the
 * machine.
 *
 * *Concurrency and isolation.* Transactions are serializable: their outcome is as if they had run one after
 * the other, also those of different servers. Outside a transaction, every call is a transaction of its own
 * and sees what is committed. Between two such calls anything may change: code that reads, decides and writes
 * has to do so in one transaction.
 * - SQLite runs one transaction at a time, in the order of their calls. Reads outside do not wait for it.
 * - PostgreSQL runs them side by side, and runs a transaction again that conflicts with another one.
 *
 * *Rules for the body of a transaction.*
 * - It uses `tx`, never `records`: a call on `records` inside of it rejects `internal`.
 * - It awaits nothing but calls on `tx`, since others wait for it: no backend, no guest, no timer. After ten
 *   seconds it is rolled back and rejects `deadline_exceeded`.
 * - It may run more than once. What must happen once, and only if it is committed, goes into
 *   `tx.afterCommit`.
 *
 * *Errors*, beside those of the verbs:
 * - `resource_exhausted`: the disk is full. Nothing of the transaction is recorded.
 * - `unavailable`: the database does not answer. The next call connects again by itself. With
 *   `details.committed: 'unknown'` the connection was lost during the commit: look before you repeat it.
 * - `conflict`: the transaction lost against others too often, or its lease was lost (`details.leaseLost`).
 *
 * *Secrets.* Environments of sandboxes and secrets of the installation are sealed with the installation's
 * key, which is not in the database.
 *
 *     await records.transaction(async (tx) => {
 *       const { sandboxes } = await tx.sandboxes.usage(project);
 *       if (sandboxes >= quota) throw new CayError('resource_exhausted', …);   // nothing is recorded
 *       await tx.sandboxes.insert(row);
 *       await tx.idempotency.remember(project, key, request, row.id);
 *       await tx.events.append({ type: 'sandbox.creating', project, sandbox: row.id });
 *       tx.afterCommit(() => wake(row.id));
 *     });
 */
export interface Records extends Tables {
  readonly driver: 'sqlite' | 'postgres';
  readonly events: EventRecords;
  /** With `guardedBy` rejects `conflict`, and records nothing, if that lease was lost. */
  transaction<T>(
    work: (tx: Transaction) => Promise<T>,
    options?: { guardedBy?: Lease | undefined },
  ): Promise<T>;
  /** Rejects `unavailable` if the database does not answer. */
  ping(): Promise<void>;
  /**
   * Writes copies of the databases into a directory: `records.db`, then `events.db`. Others write meanwhile.
   * Rejects `unsupported` where the database has tools of its own for that.
   */
  backup(directory: string): Promise<void>;
  /** Waits for transactions under way, then lets go of the database. */
  close(): Promise<void>;
}

/** The tables in a transaction. Of no use once that has ended. */
export interface Transaction extends Tables {
  /** Promises an event: it enters the log if, and only if, the transaction is committed. */
  readonly events: EventAppender;
  /** Joins this transaction. For code that is given `RecordSet`. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Called in order when the transaction is committed, before it resolves. A throw goes to `onError`. */
  afterCommit(work: () => void): void;
}

/** What code takes that works inside and outside a transaction. */
export type RecordSet = Tables & Pick<Transaction, 'events' | 'transaction'>;
