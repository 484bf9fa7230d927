import { DatabaseSync } from 'node:sqlite';
import type { AuditVerdict } from '@cay/sdk/protocol';
import { ignoreFailure } from '../../lib/in-background.ts';
import { verifyEvents } from '../events/verify-events.ts';
import { highestId } from './sqlite-chain.ts';
import { sqliteConnection } from './sqlite-connection.ts';
import { sqliteSql } from './sqlite-sql.ts';

/** Verifies the chain of events in a file that no server uses. Changes nothing. */
export async function verifyFile(path: string, key: Uint8Array | undefined): Promise<AuditVerdict> {
  const sqlite = new DatabaseSync(path, { readOnly: true });
  try {
    const hasGaps = sqlite.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'gaps'").get() !== undefined;
    // A log of an earlier version has none. The table is in memory, and gone with the connection.
    if (!hasGaps)
      sqlite.exec(
        'PRAGMA temp_store = MEMORY; CREATE TEMP TABLE gaps (first INTEGER, last INTEGER, hash BLOB, seal BLOB)',
      );
    const sql = sqliteSql({ writer: sqliteConnection(sqlite), onError: ignoreFailure });
    return await verifyEvents(sql, key, () => highestId(sql));
  } finally {
    sqlite.close();
  }
}
