import { Sandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { confirm } from '../lib/confirm.ts';
import { eachSandbox } from '../lib/each-sandbox.ts';
import { usageError } from '../lib/failure.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { all?: boolean; force?: boolean; yes?: boolean };

const SHOWN = 10;

export const rmVerb: Verb = (program) => {
  const command = program
    .command('rm')
    .description('remove sandboxes with all that they have')
    .argument('[sandbox...]', 'whole ids or names')
    .option('-a, --all', 'every sandbox of the project; asks first')
    .option('-f, --force', 'also if what they have changed cannot be written to buckets: that is lost')
    .option('-y, --yes', 'with --all: do not ask');
  withCommonOptions(command)
    .addHelpText('after', '\n  cay rm my-box\n  cay rm --all --yes')
    .action(async (refs: string[], options: Options) => {
      if (options.all === true && refs.length > 0) throw usageError('Name sandboxes or give --all, not both');
      if (!options.all && refs.length === 0)
        throw usageError('No sandbox is named', 'name some, or give --all');
      const wanted = options.all ? await everySandbox(options) : refs;
      await eachSandbox(
        wanted,
        options,
        async (sandbox) => {
          await sandbox.kill({ force: options.force });
          if (options.json) printJson({ id: sandbox.id, name: sandbox.info.name });
          else print(sandbox.info.name ?? sandbox.id);
        },
        { prefix: false },
      );
    });
};

async function everySandbox(options: Options): Promise<string[]> {
  const { options: connection, transport } = openClient(options);
  const found = await Array.fromAsync(Sandbox.list(connection));
  if (found.length === 0) {
    note('there are no sandboxes');
    return [];
  }
  const names = found.slice(0, SHOWN).map(({ id, info }) => info.name ?? id);
  const more = found.length > SHOWN ? ` and ${found.length - SHOWN} more` : '';
  const what = found.length === 1 ? 'the only sandbox' : `all ${found.length} sandboxes`;
  await confirm(`Remove ${what} of ${transport.url} (${names.join(', ')}${more})?`, options);
  return found.map(({ id }) => id);
}
