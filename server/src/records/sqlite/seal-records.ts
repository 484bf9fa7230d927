import { CayError } from '@cay/sdk/protocol';
import { isSealed, type SealedBox } from '../../lib/sealed-box.ts';
import type { SqliteConnection } from './sqlite-connection.ts';
import { sealedSpecs } from '../sealing/sealed-spec.ts';
import { secretRow } from '../sealing/secret-row.ts';

/** Where rows have a spec. */
const TABLES = ['sandboxes', 'snapshots'] as const;

/**
 * Seals what an earlier version has recorded in the clear. Call it in a transaction. Tells whether there was
 * any.
 */
export function sealRecords(connection: SqliteConnection, box: SealedBox): boolean {
  const specs = sealedSpecs(box);
  let sealed = 0;
  for (const { name, value } of secretsIn(connection)) {
    if (isSealed(Buffer.from(value).toString())) continue;
    const text = box.seal(value, secretRow(name));
    sealed += connection.run('UPDATE secrets SET value = ? WHERE name = ?', [Buffer.from(text), name]);
  }
  for (const table of TABLES) {
    const rows = connection.all<{ id: string; spec: string }>(
      `SELECT id, spec FROM ${table} WHERE json_type(spec, '$.env') = 'object' AND json_extract(spec, '$.env') <> '{}'`,
      [],
    );
    for (const { id, spec } of rows) {
      const row = `${table}/${id}`;
      const stored = specs.stored(row, specs.parsed(row, spec));
      sealed += connection.run(`UPDATE ${table} SET spec = ? WHERE id = ?`, [stored, id]);
    }
  }
  return sealed > 0;
}

const secretsIn = (connection: SqliteConnection) =>
  connection.all<{ name: string; value: Uint8Array }>('SELECT name, value FROM secrets', []);

/**
 * Throws for a secret in the clear: in records of this version another program has written it, and that
 * program knows all that is derived from it.
 */
export function requireSealed(connection: SqliteConnection): void {
  for (const { name, value } of secretsIn(connection)) {
    if (isSealed(Buffer.from(value).toString())) continue;
    throw new CayError(
      'failed_precondition',
      `The secret "${name}" in the records is not sealed: something else than this server has written it`,
      {
        hint: 'find out who has, and restore a backup',
      },
    );
  }
}
