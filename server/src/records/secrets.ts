import { randomBytes } from 'node:crypto';
import { secretRow } from './sealing/seal-records.ts';
import type { Database } from './database.ts';

/** A secret of this installation, made on first use. It is recorded sealed. */
export function installationSecret(database: Database, name: string): Uint8Array {
  const { box } = database;
  const stored = database.get<{ value: Uint8Array }>('SELECT value FROM secrets WHERE name = ?', name);
  if (stored) return box.open(Buffer.from(stored.value).toString(), secretRow(name));
  const secret = randomBytes(32);
  database.run(
    'INSERT INTO secrets (name, value) VALUES (?, ?)',
    name,
    Buffer.from(box.seal(secret, secretRow(name))),
  );
  return secret;
}
