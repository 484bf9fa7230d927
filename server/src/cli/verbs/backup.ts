import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson } from '../lib/output.ts';
import { dataDirOf, type CommonOptions } from '../lib/settings.ts';
import { formatBytes } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const backupVerb: Verb = (program) => {
  const command = program
    .command('backup')
    .description(
      'keep all records and events in a file, while the server goes on; "cay up --restore" starts from one',
    )
    .argument('<file>', 'what to write, readable by you alone')
    .option(
      '--with-key',
      'with the key that the secrets in it are sealed with; without, keep the file "control/secret.key" elsewhere',
    )
    .option('--verify', 'tell whether the file is a whole backup, and write nothing');
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

/** What is not all there has another name. */
async function write(path: string, options: CommonOptions & { withKey?: boolean }): Promise<void> {
  const unfinished = `${path}.unfinished`;
  const response = await openClient(options).transport.request('POST', '/v1/admin/backup', {
    ...(options.withKey && { query: { key: true } }),
  });
  try {
    const file = await open(unfinished, 'w', 0o600);
    try {
      const reader = response.body!.getReader();
      for (let next = await reader.read(); !next.done; next = await reader.read())
        for (let at = 0; at < next.value.length;) at += (await file.write(next.value, at)).bytesWritten;
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(unfinished, path);
  } finally {
    await rm(unfinished, { force: true });
  }
}
