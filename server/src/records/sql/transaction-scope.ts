/** What drivers share about transactions: their rules, their time limit, their callbacks. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { CayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Dialect, Sql, SqlValue } from './sql.ts';

const TIME_LIMIT_MS = 10_000;

interface Scope {
  owner: object;
  open: boolean;
}

/** The transaction whose body is running. */
const current = new AsyncLocalStorage<Scope>();

/** A statement on a connection. */
export interface Statements {
  get<T>(text: string, values: SqlValue[]): Promise<T | undefined>;
  all<T>(text: string, values: SqlValue[]): Promise<T[]>;
  run(text: string, values: SqlValue[]): Promise<number>;
}

export interface TransactionSql extends Sql {
  afterCommit(work: () => void): void;
}

/**
 * Throws `internal` in the body of a transaction of this owner: it would wait for itself, or miss its writes.
 */
export function requireOutside(owner: object): void {
  const scope = current.getStore();
  if (scope?.owner === owner && scope.open)
    throw new CayError('internal', 'A transaction is open: use "tx" inside of it, not "records"');
}

export interface ScopeOptions {
  owner: object;
  dialect: Dialect;
  statements: Statements;
  commit(): Promise<void>;
  timeLimitMs?: number;
}

/**
 * Runs the body of a transaction that has begun, and commits. Resolves with the result and the callbacks to
 * call now. Where it rejects, the driver rolls back.
 */
export async function runInScope<T>(
  { owner, dialect, statements, commit, timeLimitMs = TIME_LIMIT_MS }: ScopeOptions,
  work: (sql: TransactionSql) => Promise<T>,
): Promise<{ result: T; callbacks: (() => void)[] }> {
  const scope: Scope = { owner, open: true };
  const callbacks: (() => void)[] = [];
  const requireOpen = () => {
    if (!scope.open)
      throw new CayError('internal', 'The transaction has ended: its "tx" cannot be used any more');
  };
  const sql: TransactionSql = {
    dialect,
    async get(text, ...values) {
      requireOpen();
      return statements.get(text, values);
    },
    async all(text, ...values) {
      requireOpen();
      return statements.all(text, values);
    },
    async run(text, ...values) {
      requireOpen();
      return statements.run(text, values);
    },
    async transaction(nested) {
      requireOpen();
      return nested(sql);
    },
    afterCommit(callback) {
      requireOpen();
      callbacks.push(callback);
    },
  };
  let timer: NodeJS.Timeout | undefined;
  try {
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () =>
          reject(
            new CayError(
              'deadline_exceeded',
              `A transaction took longer than ${timeLimitMs} ms: it is undone`,
              {
                hint: 'this is a fault of the server: report it',
              },
            ),
          ),
        timeLimitMs,
      );
    });
    await faultPoint('records.transaction.begun');
    const result = await Promise.race([current.run(scope, () => work(sql)), late]);
    await faultPoint('records.transaction.written');
    scope.open = false;
    await commit();
    await faultPoint('records.transaction.committed');
    return { result, callbacks };
  } finally {
    scope.open = false;
    clearTimeout(timer);
  }
}

/** A callback that fails cannot undo what is committed. */
export function callBack(callbacks: readonly (() => void)[], onError: (error: unknown) => void): void {
  for (const callback of callbacks) {
    try {
      callback();
    } catch (error) {
      onError(error);
    }
  }
}
