import { SIGNALS, type Sandbox, type Signal } from '@cay/sdk/client';
import { InvalidArgumentError } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { signal: Signal; all?: boolean };

export const killVerb: Verb = (program) => {
  const command = program
    .command('kill')
    .description('send a signal to commands of a sandbox; the sandbox itself goes on')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('[command-id...]', 'which commands, as "cay ps" shows them (default: the one that runs)')
    .option('-a, --all', 'every command that runs')
    .option('-s, --signal <name>', 'SIGTERM, TERM or the like', parseSignal, 'SIGKILL' as Signal);
  withCommonOptions(command)
    .addHelpText(
      'after',
      '\n  cay kill my-box cmd_1f3a\n  cay kill --signal TERM --all my-box\n\n"cay stop" ends a whole sandbox, "cay rm" removes it.',
    )
    .action(async (ref: string, ids: string[], options: Options) => {
      if (options.all === true && ids.length > 0) throw usageError('Name commands or give --all, not both');
      const sandbox = await openClient(options).sandbox(ref);
      const wanted = ids.length > 0 ? ids : await running(sandbox, ref, options);
      for (const id of wanted) {
        await sandbox.signal(id, options.signal);
        if (options.json) printJson({ id, signal: options.signal });
        else print(id);
      }
    });
};

async function running(sandbox: Sandbox, ref: string, { all }: Options): Promise<string[]> {
  const commands = (await sandbox.commands()).filter(({ end }) => end === undefined);
  if (commands.length === 0) note(`no command runs in ${ref}`);
  if (all || commands.length <= 1) return commands.map(({ id }) => id);
  throw usageError(
    `${commands.length} commands run in sandbox "${ref}"`,
    `name some, or give --all: ${commands
      .slice(0, 5)
      .map(({ id }) => id)
      .join(', ')}`,
  );
}

function parseSignal(text: string): Signal {
  const name = text.toUpperCase();
  const names = Object.keys(SIGNALS) as Signal[];
  const known = names.find((signal) => signal === name || signal === `SIG${name}`);
  if (known) return known;
  throw new InvalidArgumentError(`Signals are ${names.join(', ')}.`);
}
