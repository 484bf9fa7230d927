import { openClient } from '../lib/client.ts';
import { commandsTable } from '../lib/commands-table.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { all?: boolean; quiet?: boolean };

export const psVerb: Verb = (program) => {
  const command = program
    .command('ps')
    .description('list the commands of a sandbox that run')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .option('-a, --all', 'those that have ended, too')
    .option('-q, --quiet', 'ids alone');
  withCommonOptions(command)
    .addHelpText('after', '\n  cay ps my-box\n  cay ps -a my-box\n\n"cay ls" lists sandboxes.')
    .action(async (ref: string, options: Options) => {
      const sandbox = await openClient(options).sandbox(ref);
      const all = await sandbox.commands();
      const commands = options.all ? all : all.filter(({ end }) => end === undefined);
      if (options.json) return printJson(commands);
      if (options.quiet) return commands.forEach(({ id }) => print(id));
      print(commandsTable(commands));
      const ended = all.length - commands.length;
      if (commands.length === 0 && ended > 0) note(`${ended} have ended; "cay ps -a ${ref}" lists them`);
    });
};
