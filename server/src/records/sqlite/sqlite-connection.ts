/** One connection to a SQLite file, with its prepared statements. Calls are synchronous. */
import { DatabaseSync, backup } from 'node:sqlite';
import { CayError } from '@cay/sdk/protocol';
import type { SqlValue } from '../sql/sql.ts';

export interface SqliteConnection {
  readonly sqlite: DatabaseSync;
  get<T>(text: string, values: readonly SqlValue[]): T | undefined;
  all<T>(text: string, values: readonly SqlValue[]): T[];
  run(text: string, values: readonly SqlValue[]): number;
  begin(): void;
  commit(): void;
  /** Does nothing if SQLite has undone the transaction already, as it does when the disk is full. */
  rollback(): void;
  backup(path: string): Promise<void>;
  close(): void;
}

/** Statement texts are few, but labels in queries make more: the least recently prepared is forgotten. */
const MOST_STATEMENTS = 500;

export function sqliteConnection(sqlite: DatabaseSync): SqliteConnection {
  const statements = new Map<string, ReturnType<DatabaseSync['prepare']>>();
  function prepare(text: string): ReturnType<DatabaseSync['prepare']> {
    let statement = statements.get(text);
    if (statement) return statement;
    if (statements.size >= MOST_STATEMENTS) statements.delete(statements.keys().next().value!);
    statements.set(text, (statement = sqlite.prepare(text)));
    return statement;
  }
  return {
    sqlite,
    get: <T>(text: string, values: readonly SqlValue[]) =>
      translated(() => prepare(text).get(...values) as T | undefined),
    all: <T>(text: string, values: readonly SqlValue[]) =>
      translated(() => prepare(text).all(...values) as T[]),
    run: (text, values) => translated(() => Number(prepare(text).run(...values).changes)),
    begin: () => void translated(() => prepare('BEGIN IMMEDIATE').run()),
    commit: () => void translated(() => prepare('COMMIT').run()),
    rollback() {
      if (sqlite.isOpen && sqlite.isTransaction) sqlite.exec('ROLLBACK');
    },
    async backup(path) {
      await backup(sqlite, path);
    },
    close: () => sqlite.close(),
  };
}

/** SQLITE_FULL, and SQLITE_IOERR_SHMSIZE for the index of the write-ahead log. */
const DISK_FULL = new Set([13, 4874]);

/** Reports a full disk as such. */
export function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (!DISK_FULL.has((error as { errcode?: number }).errcode ?? 0)) throw error;
    throw new CayError('resource_exhausted', 'Cannot write the records: the disk is full', {
      hint: 'remove sandboxes that are not needed, or make room on the disk of the data directory',
      cause: error,
    });
  }
}
