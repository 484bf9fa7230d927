import { randomBytes } from 'node:crypto';
import type { Database } from './database.ts';

/** A secret of this installation, made on first use. */
export function installationSecret(database: Database, name: string): Uint8Array {
  const stored = () => database.get<{ value: Uint8Array }>('SELECT value FROM secrets WHERE name = ?', name)?.value;
  const known = stored();
  if (known) return known;
  database.run('INSERT INTO secrets (name, value) VALUES (?, ?)', name, randomBytes(32));
  return stored()!;
}
