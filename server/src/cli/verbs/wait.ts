import { shellExitCode, type Sandbox, type Waited } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { endText } from '../lib/end-text.ts';
import { commandExitCodeOf, reportFailure } from '../lib/failure.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';
import { showWaiting } from '../lib/waiting.ts';

type Options = CommonOptions & { timeout?: number };

/** As `timeout` has it. */
const TIMED_OUT = 124;

export const waitVerb: Verb = (program) => {
  const command = program
    .command('wait')
    .description('wait until a command has ended, and exit as it did')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('[command-id]', 'which command; the one that the sandbox was created with if absent')
    .option('--timeout <time>', 'for how long, such as 10m (default: for ever)', parseDuration);
  withCommonOptions(command)
    .addHelpText(
      'after',
      `
Exits with the command's own code; with 124 if the time was up and the command runs on; with 125 if the
sandbox was stopped, failed or was removed first. Goes on when the server is restarted meanwhile.

  cay wait my-box
  cay wait my-box cmd_1f3a --timeout 10m`,
    )
    .action(async (ref: string, id: string | undefined, options: Options) => {
      try {
        const sandbox = await openClient(options).sandbox(ref);
        process.exitCode = show(sandbox, await wait(sandbox, id, options), options);
      } catch (error) {
        reportFailure(error);
        process.exitCode = commandExitCodeOf(error);
      }
    });
};

async function wait(sandbox: Sandbox, id: string | undefined, { timeout }: Options): Promise<Waited> {
  using _ = showWaiting(
    `waiting for ${id === undefined ? 'the command' : `command ${id}`} of ${sandbox.info.name ?? sandbox.id}`,
  );
  return await sandbox.wait({
    ...(id !== undefined && { command: id }),
    ...(timeout !== undefined && { timeoutMs: timeout }),
  });
}

function show(sandbox: Sandbox, waited: Waited, { json, timeout = 0 }: Options): number {
  const { outcome, end } = waited;
  if (json) printJson(waited);
  else if (outcome === 'timed_out')
    note(`it has not ended within ${formatAge(timeout)}; sandbox ${sandbox.id} is ${waited.status.phase}`);
  else if (end) print(endText(end));
  return end ? shellExitCode(end) : TIMED_OUT;
}
