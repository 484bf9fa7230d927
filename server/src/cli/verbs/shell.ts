import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { withoutDashes } from '../lib/exec-options.ts';
import { commandExitCodeOf, reportFailure } from '../lib/failure.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { streamCommand, terminalSize } from '../lib/stream-command.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { user?: string; workdir?: string };

/** bash where there is one; a login shell, so that the profile is read. */
const LOGIN = ['/bin/sh', '-c', 'if [ -x /bin/bash ]; then exec /bin/bash -l; else exec /bin/sh -l; fi'];

export const shellVerb: Verb = (program) => {
  const command = program
    .command('shell')
    .description('open a terminal in a sandbox')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('[command...]', 'another program than the login shell')
    .passThroughOptions()
    .option('-u, --user <user>', 'as whom')
    .option('-w, --workdir <dir>', 'where it starts');
  withCommonOptions(command, { json: false })
    .addHelpText(
      'after',
      `
Without a terminal on standard input, the shell reads its lines from there and ends with them.

  cay shell my-box
  cay shell my-box -- python3
  echo 'uname -a' | cay shell my-box`,
    )
    .action(async (ref: string, argv: string[], options: Options) => {
      process.exitCode = await openShell(ref, argv, options).catch((error: unknown) => {
        reportFailure(error);
        return commandExitCodeOf(error);
      });
    });
};

async function openShell(
  ref: string,
  argv: string[],
  { user, workdir, ...options }: Options,
): Promise<number> {
  const sandbox = await openClient(options).sandbox(ref);
  const where = { ...(user !== undefined && { user }), ...(workdir !== undefined && { workdir }) };
  const program = argv.length > 0 ? withoutDashes(argv) : LOGIN;
  if (!process.stdin.isTTY) {
    // Without a terminal the shell reads its lines as a script and ends with them.
    const shell = await sandbox.spawn({ argv: program, stdin: true, ...where });
    return streamCommand(shell, { sandbox, stdin: true, pty: false });
  }
  const terminal = await sandbox.shell(terminalSize(), {
    argv: program,
    env: {
      TERM: process.env['TERM'] ?? 'xterm-256color',
      ...(process.env['COLORTERM'] && { COLORTERM: process.env['COLORTERM'] }),
    },
    ...where,
  });
  return streamCommand(terminal, { sandbox, stdin: true, pty: true });
}
