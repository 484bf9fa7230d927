/**
 * `Sql` on a pool of PostgreSQL connections. Every call outside a transaction takes a connection from the
 * pool. Transactions are serializable, and run again when PostgreSQL undoes them in favour of another one.
 */
import type { Pool, PoolClient } from 'pg';
import { CayError } from '@cay/sdk/protocol';
import type { Dialect, Sql, SqlValue } from '../sql/sql.ts';
import {
  callBack,
  requireOutside,
  runInScope,
  type Statements,
  type TransactionSql,
} from '../sql/transaction-scope.ts';
import { isSerializationFailure, postgresError } from './postgres-errors.ts';

export const POSTGRES: Dialect = {
  insertionOrder: 'seq',
  nowMs: 'CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)',
  lockRow: ' FOR UPDATE',
  // `json` and not `jsonb`, which refuses some text that is valid JSON.
  hasMember: (column) => `(CAST(${column} AS json) ->> CAST(? AS text)) = ?`,
  jsonNumber: (column, ...path) => `CAST(CAST(${column} AS json) #>> '{${path.join(',')}}' AS numeric)`,
  jsonText: (column, ...path) => `(CAST(${column} AS json) #>> '{${path.join(',')}}')`,
};

type Isolation = 'SERIALIZABLE' | 'READ COMMITTED' | 'REPEATABLE READ READ ONLY';

export interface PostgresSql extends Sql {
  transaction<T>(work: (sql: TransactionSql) => Promise<T>): Promise<T>;
  /** One state of the database for all reads, without a limit of time. */
  snapshot<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
}

/** For how long a transaction is retried before its caller gets the error. */
const RETRY_MS = 10_000;
const LONGEST_BACKOFF_MS = 100;

export function postgresSql(
  pool: Pool,
  { isolation, onError }: { isolation: Isolation; onError(error: unknown): void },
): PostgresSql {
  const sql: PostgresSql = {
    dialect: POSTGRES,
    async get(text, ...values) {
      requireOutside(sql);
      return repeatedly(() => on(pool).get(text, values));
    },
    async all(text, ...values) {
      requireOutside(sql);
      return repeatedly(() => on(pool).all(text, values));
    },
    async run(text, ...values) {
      requireOutside(sql);
      return repeatedly(() => on(pool).run(text, values));
    },
    async transaction(work) {
      requireOutside(sql);
      return repeatedly(() => attempt(work, isolation));
    },
    snapshot: (work) => attempt(work, 'REPEATABLE READ READ ONLY', 2 ** 31 - 1),
  };

  async function attempt<T>(
    work: (tx: TransactionSql) => Promise<T>,
    level: Isolation,
    timeLimitMs?: number,
  ): Promise<T> {
    const client = await pool.connect().catch((error: unknown) => {
      throw postgresError(error);
    });
    const statements = on(client);
    let isCommitting = false;
    let failure: unknown;
    try {
      await statements.run(`BEGIN ISOLATION LEVEL ${level}`, []);
      const commit = async () => {
        isCommitting = true;
        const { command } = await client.query('COMMIT').catch((error: unknown) => {
          throw postgresError(error);
        });
        // PostgreSQL answers so, without an error, if a statement before it has failed.
        if (command === 'ROLLBACK')
          throw new CayError('internal', 'A failed transaction was not rolled back');
      };
      const { result, callbacks } = await runInScope(
        { owner: sql, dialect: POSTGRES, statements, commit, ...(timeLimitMs && { timeLimitMs }) },
        work,
      );
      callBack(callbacks, onError);
      return result;
    } catch (error) {
      failure = error;
      throw isCommitting ? unknownCommit(error) : error;
    } finally {
      // A connection whose state is not known, or whose statement is still running, is closed.
      const isLost =
        failure instanceof CayError && ['unavailable', 'deadline_exceeded'].includes(failure.code);
      if (failure === undefined) client.release();
      else if (isLost) client.release(true);
      else
        client.query('ROLLBACK').then(
          () => client.release(),
          () => client.release(true),
        );
    }
  }
  return sql;
}

/** Runs it again after a serialization failure, a little later each time. */
async function repeatedly<T>(work: () => Promise<T>): Promise<T> {
  const until = performance.now() + RETRY_MS;
  for (let attempts = 1; ; attempts++) {
    try {
      return await work();
    } catch (error) {
      if (!isSerializationFailure(error)) throw error;
      if (performance.now() > until)
        throw new CayError('conflict', `The records were changed by others ${attempts} times meanwhile`, {
          hint: 'try again later',
          cause: error,
        });
      const most = Math.min(LONGEST_BACKOFF_MS, 2 ** attempts);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * most));
    }
  }
}

function unknownCommit(error: unknown): unknown {
  if (!(error instanceof CayError) || error.code !== 'unavailable') return error;
  return new CayError('unavailable', 'The connection to the database was lost during a commit', {
    details: { committed: 'unknown' },
    hint: 'look whether the change is there before you repeat it',
    cause: error.cause,
  });
}

function on(client: Pool | PoolClient): Statements {
  async function query<T>(text: string, values: SqlValue[]): Promise<{ rows: T[]; rowCount: number | null }> {
    try {
      const { rows, rowCount } = await client.query(numbered(text), values.map(accepted));
      return { rows: rows as unknown as T[], rowCount };
    } catch (error) {
      throw postgresError(error);
    }
  }
  return {
    get: async <T>(text: string, values: SqlValue[]) => (await query<T>(text, values)).rows[0],
    all: async <T>(text: string, values: SqlValue[]) => (await query<T>(text, values)).rows,
    run: async (text, values) => (await query(text, values)).rowCount ?? 0,
  };
}

const texts = new Map<string, string>();
const MOST_TEXTS = 1000;

/** `?` becomes `$1`, `$2` and so on. No text of ours has a question mark in a literal. */
function numbered(text: string): string {
  let known = texts.get(text);
  if (known === undefined) {
    let count = 0;
    known = text.replaceAll('?', () => `$${++count}`);
    if (texts.size >= MOST_TEXTS) texts.clear();
    texts.set(text, known);
  }
  return known;
}

/** PostgreSQL has no NUL in text. */
function accepted(value: SqlValue): SqlValue {
  return typeof value === 'string' && value.includes('\0') ? value.replaceAll('\0', '\u{fffd}') : value;
}
