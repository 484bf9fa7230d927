import { CayError, type CommandInfo, type Sandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { commandExitCodeOf, reportFailure } from '../lib/failure.ts';
import { note } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { passesStdin, streamToEnd, terminalSize } from '../lib/stream-command.ts';
import { parseCount } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { offset?: number; interactive?: boolean };

export const attachVerb: Verb = (program) => {
  const command = program
    .command('attach')
    .description('join a command that runs: its output from the start, then live, and your input and signals')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('[command-id]', 'which command; the one that runs, if there is just one')
    .option('--offset <bytes>', 'begin here in its output', parseCount)
    .option('-i, --interactive', 'pass standard input on; done anyway if the command has a terminal');
  withCommonOptions(command, { json: false })
    .addHelpText(
      'after',
      '\nIn a terminal, Ctrl-P Ctrl-Q detaches from the command, which runs on; with -i only if the command has a terminal.',
    )
    .action(async (ref: string, id: string | undefined, options: Options) => {
      process.exitCode = await attach(ref, id, options).catch((error: unknown) => {
        reportFailure(error);
        return commandExitCodeOf(error);
      });
    });
};

async function attach(ref: string, id: string | undefined, options: Options): Promise<number> {
  const sandbox = await openClient(options).sandbox(ref);
  const info = await commandOf(sandbox, id);
  const command = await sandbox.attach(info.id, { offset: options.offset ?? info.keptFrom });
  if (info.pty && info.end === undefined) command.resize(terminalSize());
  const { end, exitCode } = await streamToEnd(command, {
    sandbox,
    pty: info.pty,
    stdin: info.pty || passesStdin(options.interactive),
    onTerminate: 'detach',
    detachable: true,
  });
  if (!end) note(`\ndetached from ${info.id}, which runs on`);
  return exitCode;
}

/** The one that is named, or the only one that runs. */
export async function commandOf(sandbox: Sandbox, id: string | undefined): Promise<CommandInfo> {
  if (id !== undefined) return sandbox.command(id);
  const running = (await sandbox.commands()).filter(({ end }) => end === undefined);
  if (running.length === 1) return running[0]!;
  throw new CayError(
    'invalid_argument',
    `${running.length === 0 ? 'No command runs' : `${running.length} commands run`} in sandbox "${sandbox.id}"`,
    {
      hint:
        running.length === 0
          ? '"cay inspect" shows those that have ended'
          : `name one: ${running
              .slice(0, 5)
              .map((command) => command.id)
              .join(', ')}`,
    },
  );
}
