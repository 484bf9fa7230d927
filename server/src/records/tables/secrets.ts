import { randomBytes } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { isSealed } from '../../lib/sealed-box.ts';
import { secretRow } from '../sealing/secret-row.ts';
import type { TableContext } from './table-context.ts';

/** Secrets of the installation, from which tokens and signatures are derived. */
export interface SecretRecords {
  /** Created on first use, and the same for every server of the installation. Recorded sealed. */
  get(name: string): Promise<Uint8Array>;
}

export function secretTable({ sql, box }: TableContext): SecretRecords {
  return {
    async get(name) {
      const read = () => sql.get<{ value: Uint8Array }>('SELECT value FROM secrets WHERE name = ?', name);
      let stored = await read();
      if (!stored) {
        await sql.run(
          'INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING',
          name,
          Buffer.from(box.seal(randomBytes(32), secretRow(name))),
        );
        // Another server may have created it first.
        stored = (await read())!;
      }
      const text = Buffer.from(stored.value).toString();
      if (!isSealed(text))
        throw new CayError(
          'failed_precondition',
          `The secret "${name}" in the records is not sealed: another program than this server has written it`,
          { hint: 'find out which program wrote it, and restore a backup' },
        );
      return box.open(text, secretRow(name));
    },
  };
}
