import { CayError } from '@cay/sdk/protocol';
import type { Database } from '../database.ts';
import { isSealed } from '../../lib/sealed-box.ts';
import { sealedSpecs } from './sealed-spec.ts';

/** Where rows have a spec. */
const TABLES = ['sandboxes', 'snapshots'] as const;

/**
 * Seals what an earlier version has recorded in the clear: all of it or nothing. Tells whether there was any.
 */
export function sealRecords(database: Database): boolean {
  const { box } = database;
  const specs = sealedSpecs(box);
  return database.transaction(() => {
    let sealed = 0;
    for (const { name, value } of database.all<{ name: string; value: Uint8Array }>(
      'SELECT name, value FROM secrets',
    )) {
      if (isSealed(Buffer.from(value).toString())) continue;
      const text = box.seal(value, secretRow(name));
      sealed += database.run('UPDATE secrets SET value = ? WHERE name = ?', Buffer.from(text), name);
    }
    for (const table of TABLES) {
      const rows = database.all<{ id: string; spec: string }>(
        `SELECT id, spec FROM ${table} WHERE json_type(spec, '$.env') = 'object' AND json_extract(spec, '$.env') <> '{}'`,
      );
      for (const { id, spec } of rows) {
        const row = `${table}/${id}`;
        sealed += database.run(
          `UPDATE ${table} SET spec = ? WHERE id = ?`,
          specs.stored(row, specs.parsed(row, spec)),
          id,
        );
      }
    }
    return sealed > 0;
  });
}

/**
 * Throws for a secret in the clear: in records of this version it is not ours, and all that is derived from
 * it is somebody else's too.
 */
export function requireSealed(database: Database): void {
  for (const { name, value } of database.all<{ name: string; value: Uint8Array }>(
    'SELECT name, value FROM secrets',
  )) {
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

/** What a secret of the installation is sealed for. */
export function secretRow(name: string): string {
  return `secrets/${name}`;
}
