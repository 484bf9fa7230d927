/** Puts the tables, transactions and events of a driver together. */
import { ignoreFailure, inBackground } from '../lib/in-background.ts';
import type { EventLog } from './events/event-log.ts';
import type { NewEvent } from './events/events.ts';
import type { Records, Transaction } from './records.ts';
import type { Sql } from './sql/sql.ts';
import type { TransactionSql } from './sql/transaction-scope.ts';
import { leaseTable } from './tables/leases.ts';
import type { TableContext } from './tables/table-context.ts';
import { buildTables } from './tables/tables.ts';

export interface RecordsParts {
  driver: Records['driver'];
  context: Omit<TableContext, 'sql'>;
  /** For calls outside a transaction. */
  root: Sql;
  transaction<T>(work: (sql: TransactionSql) => Promise<T>): Promise<T>;
  events: EventLog;
  /** Records the promise of an event. Resolves its number. */
  promise(sql: Sql, event: NewEvent, atMs: number): Promise<number>;
  backup(directory: string): Promise<void>;
  close(): Promise<void>;
}

export function buildRecords(parts: RecordsParts): Records {
  const { context, root, events } = parts;

  function transactionOf(sql: TransactionSql): Transaction {
    const tx: Transaction = Object.assign(buildTables({ ...context, sql }), {
      events: {
        async append(event: NewEvent) {
          const atMs = context.now();
          const number = await parts.promise(sql, event, atMs);
          sql.afterCommit(() => inBackground(events.fulfil(event, { number, atMs }), ignoreFailure));
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
      { guardedBy }: { guardedBy?: Parameters<Transaction['leases']['guard']>[0] | undefined } = {},
    ) =>
      parts.transaction(async (sql) => {
        if (guardedBy) await leaseTable({ ...context, sql }).guard(guardedBy);
        return work(transactionOf(sql));
      }),
    async ping() {
      await root.get('SELECT 1 AS one');
    },
    backup: (directory: string) => parts.backup(directory),
    close: () => parts.close(),
  });
}
