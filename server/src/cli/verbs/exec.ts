import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { execRequest, withExecOptions, withoutDashes, type ExecOptions } from '../lib/exec-options.ts';
import { commandExitCodeOf, reportFailure } from '../lib/failure.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { streamCommand } from '../lib/stream-command.ts';
import { pairs } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions &
  ExecOptions & { detach?: boolean; env?: Record<string, string>; workdir?: string; user?: string };

export const execVerb: Verb = (program) => {
  const command = program
    .command('exec')
    .description('run a command in a sandbox that exists')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('<command...>', 'the program and its arguments')
    .passThroughOptions()
    .option('-d, --detach', 'only start it, and print its id; with -i its input stays open for "cay attach"')
    .option(
      '-e, --env <key=value>',
      'an environment variable, or the name of one of yours; may be repeated',
      pairs(process.env),
    )
    .option('-w, --workdir <dir>', 'where it starts')
    .option('-u, --user <user>', 'as whom it runs');
  withExecOptions(command);
  withCommonOptions(command)
    .addHelpText(
      'after',
      '\nExits with the command\'s own code, or as "cay run" does. --json shows the started command (with --detach) or its result.',
    )
    .action(async (ref: string, argv: string[], options: Options) => {
      process.exitCode = await execCommand(ref, argv, options).catch((error: unknown) => {
        reportFailure(error);
        return commandExitCodeOf(error);
      });
    });
};

async function execCommand(ref: string, argv: string[], options: Options): Promise<number> {
  const sandbox = await openClient(options).sandbox(ref);
  const { env, stdin, ...request } = execRequest(withoutDashes(argv), options);
  const { workdir, user } = options;
  const full = {
    ...request,
    ...(workdir !== undefined && { workdir }),
    ...(user !== undefined && { user }),
    env: { ...env, ...options.env },
  };
  if (options.detach) {
    const launched = await sandbox.launch({ ...full, ...(options.interactive && { stdin: true }) });
    if (options.json) printJson(launched);
    else print(launched.command.id);
    return 0;
  }
  if (options.json) {
    const result = await sandbox.exec(full);
    printJson(result);
    return result.exitCode;
  }
  return streamCommand(await sandbox.spawn({ ...full, stdin }), { stdin, pty: options.tty === true });
}
