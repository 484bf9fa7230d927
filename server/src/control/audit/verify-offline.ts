import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { CayError, type AuditVerdict } from '@cay/sdk/protocol';
import { verifyChain } from './verify-chain.ts';

/** Verifies the events in a directory that no server has: records and events as a server or a backup keeps them. Changes nothing. */
export async function verifyOffline(directory: string): Promise<AuditVerdict> {
  const path = join(directory, 'events.db');
  if (!existsSync(path)) throw new CayError('not_found', `There are no events in "${directory}"`);
  const sqlite = new DatabaseSync(path, { readOnly: true });
  try {
    return await verifyChain(sqlite, keyIn(join(directory, 'records.db')));
  } catch (error) {
    throw new CayError('failed_precondition', `Cannot read "${path}": ${(error as Error).message}`, {
      cause: error,
      hint: 'the server must not be running; one that is answers "cay audit verify" itself',
    });
  } finally {
    sqlite.close();
  }
}

/** Without the records there is no key, and the hashes alone are verified. */
function keyIn(records: string): Uint8Array | undefined {
  if (!existsSync(records)) return undefined;
  const sqlite = new DatabaseSync(records, { readOnly: true });
  try {
    return (sqlite.prepare("SELECT value FROM secrets WHERE name = 'audit'").get() as { value: Uint8Array } | undefined)?.value;
  } finally {
    sqlite.close();
  }
}
