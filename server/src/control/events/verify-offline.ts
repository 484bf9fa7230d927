import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { CayError, type AuditVerdict } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { isSealed, keyIdOf } from '../../lib/sealed-box.ts';
import { knownKey } from '../../records/sealing/installation-key.ts';
import { secretRow } from '../../records/sealing/secret-row.ts';
import { verifyFile } from '../../records/sqlite/verify-file.ts';

/**
 * Verifies the events in a directory without a running server: the data directory or a backup. Changes
 * nothing. The key that seals the records may be in another directory.
 */
export async function verifyOffline(directory: string, keyDirectory = directory): Promise<AuditVerdict> {
  const path = join(directory, 'events.db');
  if (!existsSync(path)) throw new CayError('not_found', `There are no events in "${directory}"`);
  try {
    return await verifyFile(path, keyIn(directory, keyDirectory));
  } catch (error) {
    throw new CayError('failed_precondition', `Cannot read "${path}": ${systemReason(error)}`, {
      cause: error,
      hint: 'the server must not be running; one that is answers "cay audit verify" itself',
    });
  }
}

/** Without the records, or without the key that seals them, only the hashes are verified. */
function keyIn(directory: string, keyDirectory: string): Uint8Array | undefined {
  const records = join(directory, 'records.db');
  if (!existsSync(records)) return undefined;
  const sqlite = new DatabaseSync(records, { readOnly: true });
  try {
    const stored = sqlite.prepare("SELECT value FROM secrets WHERE name = 'audit'").get() as
      | { value: Uint8Array }
      | undefined;
    const text = stored && Buffer.from(stored.value).toString();
    if (!isSealed(text)) return stored?.value;
    const box = knownKey(directory) ?? knownKey(keyDirectory);
    return box?.keyId === keyIdOf(text) ? box.open(text, secretRow('audit')) : undefined;
  } finally {
    sqlite.close();
  }
}
