import type { DatabaseSync } from 'node:sqlite';

/** Runs the statements as one transaction. */
export function atOnce<T>(sqlite: DatabaseSync, work: () => T): T {
  sqlite.exec('BEGIN');
  try {
    const result = work();
    sqlite.exec('COMMIT');
    return result;
  } catch (error) {
    // On a full disk SQLite may have rolled back already.
    if (sqlite.isTransaction) sqlite.exec('ROLLBACK');
    throw error;
  }
}
