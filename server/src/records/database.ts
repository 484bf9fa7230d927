/**
 * The control plane's records: SQLite in WAL mode.
 *
 * A record is written before the operation it announces, so a commit has to be on the disk when it
 * returns: `synchronous = FULL`. Calls are synchronous; one costs a fraction of a millisecond, and
 * nothing can come between the check of a quota and the insert that uses it up.
 */
import { chmodSync, closeSync, fsyncSync, openSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, backup, type SQLInputValue } from 'node:sqlite';
import { CayError } from '@cay/sdk/protocol';
import type { SealedBox } from '../lib/sealed-box.ts';
import { openInstallationKey } from './sealing/installation-key.ts';
import { LAST_IN_THE_CLEAR } from './sealing/clear-copies.ts';
import { requireSealed, sealRecords } from './sealing/seal-records.ts';
import { MIGRATIONS } from './migrations.ts';

export interface Database {
  get<T>(sql: string, ...values: SQLInputValue[]): T | undefined;
  all<T>(sql: string, ...values: SQLInputValue[]): T[];
  /** Resolves how many rows changed. */
  run(sql: string, ...values: SQLInputValue[]): number;
  /** All or nothing. One inside of another is part of it. */
  transaction<T>(work: () => T): T;
  readonly inTransaction: boolean;
  /**
   * Called when what has been written in this transaction is on the disk, and never if that is undone. At
   * once outside of one.
   */
  afterCommit(work: () => void): void;
  /** Seals what must not be read by whoever has the file alone. */
  readonly box: SealedBox;
  /** A copy of everything, as it is at one moment. Others go on meanwhile. */
  backup(path: string): Promise<void>;
  close(): void;
}

export function openDatabase(path: string, box = openInstallationKey(dirname(path))): Database {
  const sqlite = new DatabaseSync(path);
  sqlite.exec(
    'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000',
  );
  const statements = new Map<string, ReturnType<DatabaseSync['prepare']>>();
  const prepare = (sql: string) => {
    let statement = statements.get(sql);
    if (!statement) statements.set(sql, (statement = sqlite.prepare(sql)));
    return statement;
  };
  let depth = 0;
  let after: (() => void)[] = [];
  const database: Database = {
    get: <T>(sql: string, ...values: SQLInputValue[]) => prepare(sql).get(...values) as T | undefined,
    all: <T>(sql: string, ...values: SQLInputValue[]) => prepare(sql).all(...values) as T[],
    run: (sql, ...values) => told(() => Number(prepare(sql).run(...values).changes)),
    transaction(work) {
      if (depth > 0) return work();
      told(() => sqlite.exec('BEGIN IMMEDIATE'));
      depth++;
      let committed = false;
      try {
        const result = work();
        told(() => sqlite.exec('COMMIT'));
        committed = true;
        return result;
      } catch (error) {
        // Of a full disk SQLite may have undone it already.
        if (sqlite.isTransaction) sqlite.exec('ROLLBACK');
        throw error;
      } finally {
        depth--;
        const callbacks = after;
        after = [];
        if (committed) for (const callback of callbacks) callback();
      }
    },
    get inTransaction() {
      return depth > 0;
    },
    afterCommit(work) {
      if (depth > 0) after.push(work);
      else work();
    },
    box,
    async backup(to) {
      await backup(sqlite, to);
    },
    close: () => sqlite.close(),
  };
  if (migrate(database, sqlite, path)) forgetOldPages(sqlite);
  requireSealed(database);
  return database;
}

/** What was overwritten stays in free pages and in the log until they are written anew. */
function forgetOldPages(sqlite: DatabaseSync): void {
  sqlite.exec('VACUUM; PRAGMA wal_checkpoint(TRUNCATE)');
}

/** No room for the database or its log, or for the index of that log. */
const FULL = new Set([13, 4874]);

/** Says of a full disk that it is full. */
function told<T>(write: () => T): T {
  try {
    return write();
  } catch (error) {
    if (!FULL.has((error as { errcode?: number }).errcode ?? 0)) throw error;
    throw new CayError('resource_exhausted', 'Cannot write the records: the disk is full', {
      hint: 'remove sandboxes that are not needed, or make room on the disk of the data directory',
      cause: error,
    });
  }
}

/**
 * What was in the clear is sealed with the step that no such records are of any more. Tells whether there was
 * any.
 */
function migrate(database: Database, sqlite: DatabaseSync, path: string): boolean {
  const { user_version: version } = database.get<{ user_version: number }>('PRAGMA user_version') ?? {
    user_version: 0,
  };
  if (version > MIGRATIONS.length) {
    throw new CayError(
      'failed_precondition',
      `Cannot open "${path}": it was written by a newer version of Cay`,
      {
        hint: 'run the newer version, or restore a backup made before the upgrade',
      },
    );
  }
  if (version > 0 && version < MIGRATIONS.length) told(() => keepCopy(sqlite, path, version));
  // A server that dies before `forgetOldPages` must not leave secrets in pages that are free.
  if (version > 0 && version <= LAST_IN_THE_CLEAR) sqlite.exec('PRAGMA secure_delete = ON');
  let sealed = false;
  MIGRATIONS.slice(version).forEach((sql, index) => {
    database.transaction(() => {
      sqlite.exec(sql);
      if (version + index === LAST_IN_THE_CLEAR) sealed = sealRecords(database);
      sqlite.exec(`PRAGMA user_version = ${version + index + 1}`);
    });
  });
  return sealed;
}

/** Records as an earlier version had them stay beside the new ones, for whoever has to go back to it. */
function keepCopy(sqlite: DatabaseSync, path: string, version: number): void {
  const copy = `${path}.v${version}.bak`;
  const unfinished = `${copy}.tmp`;
  rmSync(unfinished, { force: true });
  sqlite.prepare('VACUUM INTO ?').run(unfinished);
  chmodSync(unfinished, 0o600);
  const file = openSync(unfinished, 'r');
  fsyncSync(file);
  closeSync(file);
  renameSync(unfinished, copy);
}
