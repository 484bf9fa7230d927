import { join } from 'node:path';
import { bytesOf } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson } from '../lib/output.ts';
import { showProgress } from '../lib/progress.ts';
import { dataDirOf, type CommonOptions } from '../lib/settings.ts';
import { formatBytes } from '../lib/units.ts';
import { counted, writeWhole } from '../lib/write-whole.ts';
import type { Verb } from '../verb.ts';

export const backupVerb: Verb = (program) => {
  const command = program
    .command('backup')
    .description(
      'write all records and events to a file while the server runs; "cay up --restore" starts from it',
    )
    .argument('<file>', 'where to write it, readable by you alone')
    .option(
      '--with-key',
      'with the key that the secrets in it are sealed with; without, keep the file "control/secret.key" elsewhere',
    )
    .option('--verify', 'check that the file is a whole backup, and write nothing');
  withCommonOptions(command).action(
    async (file: string, options: CommonOptions & { verify?: boolean; withKey?: boolean }) => {
      if (!options.verify) await write(file, options);
      const { verifyBackup } = await import('../../control/recovery/backup-archive.ts');
      const facts = await verifyBackup(file, join(dataDirOf(options), 'control'));
      if (options.json) return printJson({ file, ...facts });
      const { audit, bytes, createdAtMs, version, withKey } = facts;
      print(
        `${colour.green('ok')}  ${formatBytes(bytes)} of ${new Date(createdAtMs).toISOString()}, by version ${version}, ${audit.events} events`,
      );
      print(`head  ${audit.head}`);
      print(
        `key   ${withKey ? 'in it' : 'not in it: keep "control/secret.key" of the data directory, or what gives the key, elsewhere'}`,
      );
    },
  );
};

async function write(path: string, options: CommonOptions & { withKey?: boolean }): Promise<void> {
  const response = await openClient(options).transport.request('POST', '/v1/admin/backup', {
    ...(options.withKey && { query: { key: true } }),
  });
  const progress = showProgress(`${path} ←`);
  await writeWhole(
    path,
    counted(bytesOf(response), (count) => progress.bytes(count)),
    { mode: 0o600, sync: true },
  );
  progress.finish();
}
