/**
 * `Sql` on a SQLite file. One connection writes, and one transaction at a time has it: transactions and
 * single writes wait in a queue. Reads outside a transaction use the same connection while no transaction is
 * open, and a second connection while one is, so that they see what is committed.
 *
 * Calls run on the event loop. A read takes microseconds, and a thread would cost more than it saves.
 */
import type { Dialect, Sql } from '../sql/sql.ts';
import {
  callBack,
  requireOutside,
  runInScope,
  type Statements,
  type TransactionSql,
} from '../sql/transaction-scope.ts';
import type { SqliteConnection } from './sqlite-connection.ts';

export const SQLITE: Dialect = {
  insertionOrder: 'rowid',
  nowMs: `CAST(unixepoch('subsec') * 1000 AS INTEGER)`,
  // There is one writer.
  lockRow: '',
  hasMember: (column) =>
    `EXISTS (SELECT 1 FROM json_each(${column}) AS member WHERE member.key = ? AND member.value = ?)`,
  jsonNumber: (column, ...path) => `json_extract(${column}, '$.${path.join('.')}')`,
  jsonText: (column, ...path) => `json_extract(${column}, '$.${path.join('.')}')`,
};

export interface SqliteSql extends Sql {
  transaction<T>(work: (sql: TransactionSql) => Promise<T>): Promise<T>;
  /** Resolves when no transaction is open or waits. */
  idle(): Promise<void>;
}

export interface SqliteSqlOptions {
  writer: SqliteConnection;
  /**
   * A second connection, opened when it is first needed. Where there can be none, reads wait as writes do.
   */
  openReader?(): SqliteConnection;
  onError(error: unknown): void;
}

export function sqliteSql({ writer, openReader, onError }: SqliteSqlOptions): SqliteSql {
  let reader: SqliteConnection | undefined;
  let busy = false;
  const waiting: (() => void)[] = [];
  const idlers: (() => void)[] = [];

  /** Resolves when the caller has the writer. Nothing to wait for where it is free. */
  function enter(): Promise<void> | undefined {
    if (busy) return new Promise((resolve) => waiting.push(resolve));
    busy = true;
    return undefined;
  }

  function leave(): void {
    const next = waiting.shift();
    if (next) return next();
    busy = false;
    for (const idler of idlers.splice(0)) idler();
  }

  function read<T>(text: string, on: (connection: SqliteConnection) => T): T | Promise<T> {
    // `RETURNING` makes a write of it.
    if (!text.startsWith('SELECT')) return alone(() => on(writer));
    if (!busy) return on(writer);
    if (!openReader) return alone(() => on(writer));
    return on((reader ??= openReader()));
  }

  const statements: Statements = {
    get: async (text, values) => writer.get(text, values),
    all: async (text, values) => writer.all(text, values),
    run: async (text, values) => writer.run(text, values),
  };

  const sql: SqliteSql = {
    dialect: SQLITE,
    async get(text, ...values) {
      requireOutside(sql);
      return read(text, (connection) => connection.get(text, values));
    },
    async all(text, ...values) {
      requireOutside(sql);
      return read(text, (connection) => connection.all(text, values));
    },
    async run(text, ...values) {
      requireOutside(sql);
      return alone(() => writer.run(text, values));
    },
    async transaction(work) {
      requireOutside(sql);
      const turn = enter();
      if (turn) await turn;
      try {
        writer.begin();
        const { result, callbacks } = await runInScope(
          { owner: sql, dialect: SQLITE, statements, commit: async () => writer.commit() },
          work,
        );
        callBack(callbacks, onError);
        return result;
      } catch (error) {
        writer.rollback();
        throw error;
      } finally {
        leave();
      }
    },
    idle: () => (busy ? new Promise((resolve) => idlers.push(resolve)) : Promise.resolve()),
  };

  async function alone<T>(work: () => T): Promise<T> {
    const turn = enter();
    if (turn) await turn;
    try {
      return work();
    } finally {
      leave();
    }
  }

  return sql;
}
