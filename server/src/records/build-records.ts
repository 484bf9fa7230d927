/** Puts the tables, transactions and events of a driver together. */
import { ignoreFailure, inBackground } from '../lib/in-background.ts';
import type { EventLog } from './events/event-log.ts';
import type { NewEvent } from './events/events.ts';
import type { Records, Transaction } from './records.ts';
import type { Sql } from './sql/sql.ts';
import type { TransactionSql } from './sql/transaction-scope.ts';
import { currentLease } from './leases/current-lease.ts';
import { leaseTable, type Lease } from './tables/leases.ts';
import type { TableContext } from './tables/table-context.ts';
import { buildTables } from './tables/tables.ts';

export interface RecordsParts {
  driver: Records['driver'];
  context: Omit<TableContext, 'sql'>;
  /** For calls outside a transaction. */
  root: Sql;
  transaction<T>(work: (sql: TransactionSql) => Promise<T>): Promise<T>;
  events: EventLog;
  /** Whether other servers may change the records, so that leases count. */
  shared: boolean;
  /** Records the promise of an event. Resolves its number. */
  promise(sql: Sql, event: NewEvent, atMs: number): Promise<number>;
  backup(directory: string): Promise<void>;
  close(): Promise<void>;
}

export function buildRecords(parts: RecordsParts): Records {
  const { context, events, shared } = parts;

  /** Records nothing if the lease was lost. */
  const guarded = <T>(lease: Lease, work: (sql: TransactionSql) => Promise<T>) =>
    parts.transaction(async (sql) => {
      await leaseTable({ ...context, sql }).guard(lease);
      return work(sql);
    });

  const root: Sql = shared ? guardedRoot() : parts.root;

  /** Single writes of an operation that has a lease are guarded as its transactions are. */
  function guardedRoot(): Sql {
    const isRead = (text: string) => text.startsWith('SELECT');
    return {
      dialect: parts.root.dialect,
      async get(text, ...values) {
        const lease = isRead(text) ? undefined : currentLease();
        return lease ? guarded(lease, (sql) => sql.get(text, ...values)) : parts.root.get(text, ...values);
      },
      async all(text, ...values) {
        const lease = isRead(text) ? undefined : currentLease();
        return lease ? guarded(lease, (sql) => sql.all(text, ...values)) : parts.root.all(text, ...values);
      },
      async run(text, ...values) {
        const lease = currentLease();
        return lease ? guarded(lease, (sql) => sql.run(text, ...values)) : parts.root.run(text, ...values);
      },
      async transaction(work) {
        const lease = currentLease();
        return lease ? guarded(lease, work) : parts.root.transaction(work);
      },
    };
  }

  /**
   * Runs a transaction. Where this server alone writes the log, its events are in the log when it resolves,
   * so that who has changed something finds the event of it.
   */
  async function transact<T>(
    run: <R>(work: (sql: TransactionSql) => Promise<R>) => Promise<R>,
    work: (tx: Transaction) => Promise<T>,
  ): Promise<T> {
    const fulfilled: Promise<void>[] = [];
    const result = await run((sql) => work(transactionOf(sql, fulfilled)));
    if (!shared && fulfilled.length > 0) await Promise.all(fulfilled);
    return result;
  }

  function transactionOf(sql: TransactionSql, fulfilled: Promise<void>[]): Transaction {
    const tx: Transaction = Object.assign(buildTables({ ...context, sql }), {
      events: {
        async append(event: NewEvent) {
          const atMs = context.now();
          const number = await parts.promise(sql, event, atMs);
          sql.afterCommit(() => {
            const written = events.fulfil(event, { number, atMs });
            fulfilled.push(written);
            inBackground(written, ignoreFailure);
          });
        },
      },
      transaction: <T>(work: (joined: Transaction) => Promise<T>) => work(tx),
      afterCommit: (work: () => void) => sql.afterCommit(work),
    });
    return tx;
  }

  return Object.assign(buildTables({ ...context, sql: root }), {
    driver: parts.driver,
    events,
    transaction: <T>(
      work: (tx: Transaction) => Promise<T>,
      { guardedBy = shared ? currentLease() : undefined }: { guardedBy?: Lease | undefined } = {},
    ) => transact((body) => (guardedBy ? guarded(guardedBy, body) : parts.transaction(body)), work),
    async ping() {
      await parts.root.get('SELECT 1 AS one');
    },
    backup: (directory: string) => parts.backup(directory),
    close: () => parts.close(),
  });
}
