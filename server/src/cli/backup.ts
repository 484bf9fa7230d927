import { open, rename, rm } from 'node:fs/promises';
import { openClient } from './client.ts';
import { withCommonOptions } from './common-options.ts';
import { colour, print, printJson } from './output.ts';
import type { CommonOptions } from './settings.ts';
import { formatBytes } from './units.ts';
import type { Verb } from './verb.ts';

export const backupVerb: Verb = (program) => {
  const command = program
    .command('backup')
    .description('keep all records and events in a file, while the server goes on; "cay up --restore" starts from one')
    .argument('<file>', 'what to write, readable by you alone: it has secrets in it')
    .option('--verify', 'tell whether the file is a whole backup, and write nothing');
  withCommonOptions(command).action(async (file: string, options: CommonOptions & { verify?: boolean }) => {
    if (!options.verify) await write(file, options);
    const { verifyBackup } = await import('../control/records/backup.ts');
    const facts = await verifyBackup(file);
    if (options.json) return printJson({ file, ...facts });
    const { audit, bytes, createdAtMs, version } = facts;
    print(
      `${colour.green('ok')}  ${formatBytes(bytes)} of ${new Date(createdAtMs).toISOString()}, by version ${version}, ${audit.events} events`,
    );
    print(`head  ${audit.head}`);
  });
};

/** What is not all there has another name. */
async function write(path: string, options: CommonOptions): Promise<void> {
  const unfinished = `${path}.unfinished`;
  const response = await openClient(options).transport.request('POST', '/v1/admin/backup');
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
