import type { Process } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import {
  execRequest,
  withExecOptions,
  withShellHint,
  withoutDashes,
  type ExecOptions,
} from '../lib/exec-options.ts';
import { commandExitCodeOf, reportFailure } from '../lib/failure.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { streamCommand, streamToEnd, type StreamOptions } from '../lib/stream-command.ts';
import { pairs } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions &
  ExecOptions & { detach?: boolean; env?: Record<string, string>; workdir?: string; user?: string };

/** Of output in a result as JSON, both streams together. */
const MOST_OUTPUT = 8 * 1024 * 1024;

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
      `
Exits with the command's own code, or as "cay run" does. --json shows the result with at most 8 MiB of output,
or with --detach the command that was started.

  cay exec my-box -- ls -la
  cay exec my-box -- sh -c 'ls | wc -l'
  cay exec -d my-box -- python3 -m http.server 8000`,
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
    const launched = await withShellHint(request.argv, () =>
      sandbox.launch({ ...full, ...(options.interactive && { stdin: true }) }),
    );
    if (options.json) printJson(launched);
    else print(launched.command.id);
    return 0;
  }
  const command = await withShellHint(request.argv, () => sandbox.spawn({ ...full, stdin }));
  const streaming = { sandbox, stdin, pty: options.tty === true };
  return options.json ? collect(command, streaming) : streamCommand(command, streaming);
}

/** The whole result as one value, with as much output as fits. */
async function collect(command: Process, options: StreamOptions): Promise<number> {
  const begun = performance.now();
  const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let left = MOST_OUTPUT;
  let truncated = false;
  const { end, exitCode } = await streamToEnd(command, {
    ...options,
    onOutput(channel, data) {
      const kept = data.subarray(0, left);
      left -= kept.length;
      truncated ||= kept.length < data.length;
      output[channel === 'stderr' ? 'stderr' : 'stdout'].push(kept);
    },
  });
  const text = (chunks: Uint8Array[]) => Buffer.concat(chunks).toString();
  printJson({
    id: command.id,
    end,
    exitCode,
    stdout: text(output.stdout),
    stderr: text(output.stderr),
    truncated,
    durationMs: Math.round(performance.now() - begun),
  });
  return exitCode;
}
