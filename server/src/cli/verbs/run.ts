import type { Image, Sandbox } from '@cay/sdk/client';
import { withCommonOptions } from '../lib/common-options.ts';
import { execRequest, withExecOptions, withShellHint, type ExecOptions } from '../lib/exec-options.ts';
import { commandExitCodeOf, reportFailure, usageError } from '../lib/failure.ts';
import { imageFirst } from '../lib/image-first.ts';
import { note } from '../lib/output.ts';
import { sandboxRequest, withSandboxOptions, type SandboxOptions } from '../lib/sandbox-options.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { streamCommand } from '../lib/stream-command.ts';
import type { Composition, Verb } from '../verb.ts';
import { showWaiting } from '../lib/waiting.ts';
import { withServer } from '../lib/with-server.ts';

type Options = CommonOptions & SandboxOptions & ExecOptions & { keep?: boolean; rm?: boolean };

/** A sandbox whose `run` was killed outlives it by at most this. */
const LEASE_MS = 15 * 60_000;

export const runVerb: Verb = (program, composition) => {
  const command = program
    .command('run')
    .description('run a command in a new sandbox, which is removed afterwards')
    .argument('[command...]', 'the program and its arguments (default: the own command of --image)')
    .passThroughOptions()
    .option('--keep', 'keep the sandbox when the command has ended')
    .option('--rm', 'remove it (default)');
  withExecOptions(command);
  withSandboxOptions(command);
  withCommonOptions(command, { json: false });
  command
    .addHelpText(
      'after',
      `
Starts the server in the background if none answers. Exits with the command's own code, or:
  124 it ran into --timeout     126 it cannot be executed    128+n signal n ended it
  125 Cay failed, or lost it    127 it was not found         137 it ran out of memory

  cay run -- python3 -c 'print(6 * 7)'
  echo hello | cay run --memory 512m -- tr a-z A-Z
  cay run -it bash
  cay run --image python:3.12-slim -- python3 --version`,
    )
    .action(async (argv: string[], options: Options) => {
      // Wrong flags are reported as for every other verb.
      sandboxRequest(options);
      if (argv.length === 0 && options.image === undefined)
        throw usageError('"run" needs a command', 'give it after --, as in: cay run -- echo hello');
      process.exitCode = await runCommand(composition, argv, options).catch((error: unknown) => {
        reportFailure(error);
        return commandExitCodeOf(error);
      });
    });
};

async function runCommand(composition: Composition, argv: string[], options: Options): Promise<number> {
  const asked = askedToStop();
  const { sandbox, image } = await makeSandbox(composition, options);
  const renewal = options.keep
    ? undefined
    : setInterval(() => void sandbox.update({ timeoutMs: LEASE_MS }).catch(() => {}), LEASE_MS / 3);
  try {
    if (asked.code !== undefined) return asked.code;
    const program = argv.length > 0 ? argv : ownCommand(image, options.image);
    const { stdin, ...request } = execRequest(program, options);
    const process_ = await withShellHint(program, () => sandbox.spawn({ ...request, stdin }));
    asked.release();
    return await streamCommand(process_, { sandbox, stdin, pty: options.tty === true });
  } finally {
    clearInterval(renewal);
    if (options.keep) note(`kept sandbox ${sandbox.info.name ?? sandbox.id}`);
    else await sandbox.kill({ wait: false }).catch((error: unknown) => reportFailure(error));
  }
}

async function makeSandbox(
  composition: Composition,
  options: Options,
): Promise<{ sandbox: Sandbox; image: Image | undefined }> {
  const lease = options.keep ? {} : { timeoutMs: LEASE_MS, onTimeout: 'destroy' as const };
  return await withServer(composition, options, async (client) => {
    const image = options.image === undefined ? undefined : await imageFirst(client, options.image);
    using _ = showWaiting('creating a sandbox');
    return { sandbox: await client.create({ ...sandboxRequest(options), ...lease }), image };
  });
}

/** What an image is run with if nothing else is. */
function ownCommand(image: Image | undefined, name: string | undefined): string[] {
  const command = image ? [...image.config.entrypoint, ...image.config.cmd] : [];
  if (command.length > 0) return command;
  throw usageError(
    image ? `Image "${name}" has no command of its own` : `The command of image "${name}" is not known here`,
    'give one after --',
  );
}

/**
 * While the sandbox is being made there is no command yet to pass a signal to; afterwards it would be too
 * late to start one.
 */
function askedToStop(): { code: number | undefined; release(): void } {
  const state = { code: undefined as number | undefined, release };
  const interrupt = () => (state.code = 130);
  const terminate = () => (state.code = 143);
  function release() {
    process.off('SIGINT', interrupt).off('SIGTERM', terminate);
  }
  process.on('SIGINT', interrupt).on('SIGTERM', terminate);
  return state;
}
