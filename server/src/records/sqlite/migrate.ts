/** Brings `records.db` to the present version, before it is used. Synchronous: no request waits yet. */
import { chmodSync, closeSync, fsyncSync, openSync, renameSync, rmSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { CayError } from '@cay/sdk/protocol';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { LAST_IN_THE_CLEAR } from '../sealing/clear-copies.ts';
import { requireSealed, sealRecords } from './seal-records.ts';
import { MIGRATIONS } from './migrations.ts';
import { translated, type SqliteConnection } from './sqlite-connection.ts';

/**
 * Migrates, and seals what an earlier version recorded in clear text. Keeps a copy of the records as they
 * were. Throws `failed_precondition` for records of a newer version.
 */
export function migrateRecords(connection: SqliteConnection, path: string, box: SealedBox): void {
  if (migrate(connection, path, box)) forgetOldPages(connection.sqlite);
  requireSealed(connection);
}

/** Overwritten rows stay in free pages and in the log until those are rewritten. */
function forgetOldPages(sqlite: DatabaseSync): void {
  sqlite.exec('VACUUM; PRAGMA wal_checkpoint(TRUNCATE)');
}

/**
 * What was in the clear is sealed with the step that no such records are of any more. Tells whether there was
 * any.
 */
function migrate(connection: SqliteConnection, path: string, box: SealedBox): boolean {
  const { sqlite } = connection;
  const version = connection.get<{ user_version: number }>('PRAGMA user_version', [])?.user_version ?? 0;
  if (version > MIGRATIONS.length) {
    throw new CayError(
      'failed_precondition',
      `Cannot open "${path}": it was written by a newer version of Cay`,
      {
        hint: 'run the newer version, or restore a backup made before the upgrade',
      },
    );
  }
  if (version > 0 && version < MIGRATIONS.length) translated(() => keepCopy(sqlite, path, version));
  // A server that dies before `forgetOldPages` must not leave secrets in pages that are free.
  if (version > 0 && version <= LAST_IN_THE_CLEAR) sqlite.exec('PRAGMA secure_delete = ON');
  let sealed = false;
  MIGRATIONS.slice(version).forEach((sql, index) => {
    connection.begin();
    try {
      translated(() => sqlite.exec(sql));
      if (version + index === LAST_IN_THE_CLEAR) sealed = sealRecords(connection, box);
      sqlite.exec(`PRAGMA user_version = ${version + index + 1}`);
      connection.commit();
    } catch (error) {
      connection.rollback();
      throw error;
    }
  });
  return sealed;
}

/** The records of the earlier version stay beside the new ones, so that an operator can downgrade. */
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
