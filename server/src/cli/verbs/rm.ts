import { Sandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { eachSandbox } from '../lib/each-sandbox.ts';
import { usageError } from '../lib/failure.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

export const rmVerb: Verb = (program) => {
  const command = program
    .command('rm')
    .description('remove sandboxes with all that they have')
    .argument('[sandbox...]', 'ids, names or beginnings of ids')
    .option('-a, --all', 'every one');
  withCommonOptions(command).action(async (refs: string[], options: CommonOptions & { all?: boolean }) => {
    if (options.all === true && refs.length > 0) throw usageError('Name sandboxes or give --all, not both');
    if (!options.all && refs.length === 0) throw usageError('Which sandboxes?', 'name them, or give --all');
    const wanted = [...refs];
    if (options.all) for await (const { id } of Sandbox.list(openClient(options).options)) wanted.push(id);
    await eachSandbox(wanted, options, async (sandbox) => {
      await sandbox.kill();
      if (options.json) printJson({ id: sandbox.id, name: sandbox.info.name });
      else print(sandbox.info.name ?? sandbox.id);
    });
  });
};
