import type { DatabaseSync } from 'node:sqlite';

/** All of it or nothing. */
export function atOnce<T>(sqlite: DatabaseSync, work: () => T): T {
  sqlite.exec('BEGIN');
  try {
    const result = work();
    sqlite.exec('COMMIT');
    return result;
  } catch (error) {
    // Of a full disk SQLite may have undone it already.
    if (sqlite.isTransaction) sqlite.exec('ROLLBACK');
    throw error;
  }
}
