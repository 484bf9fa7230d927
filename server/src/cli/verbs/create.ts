import {
  CayError,
  ERRORS,
  Sandbox,
  isCayError,
  type CreateSandboxInput,
  type Problem,
  type SnapshotId,
} from '@cay/sdk/client';
import { inCliWords, withFlag } from '../lib/cli-words.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { withHint } from '../lib/failure.ts';
import { imageFirst } from '../lib/image-first.ts';
import { idleOf, msOf, withLifetimeOptions, type LifetimeOptions } from '../lib/lifetime-options.ts';
import { colour, print, printJson, printable } from '../lib/output.ts';
import { sandboxRequest, withSandboxOptions, type SandboxOptions } from '../lib/sandbox-options.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parsePort } from '../lib/units.ts';
import type { Composition, Verb } from '../verb.ts';
import { showWaiting } from '../lib/waiting.ts';
import { withServer } from '../lib/with-server.ts';

interface Options extends CommonOptions, SandboxOptions, LifetimeOptions {
  port?: number[];
  getOrCreate?: boolean;
  dryRun?: boolean;
  imageCommand?: boolean;
  snapshot?: string;
}

const parsePorts = (text: string, before: number[] | undefined) => [...(before ?? []), parsePort(text)];

export const createVerb: Verb = (program, composition) => {
  const command = program
    .command('create')
    .description('create a sandbox that stays, and print its id')
    .argument('[command...]', 'a command that is started with the sandbox')
    .passThroughOptions();
  withLifetimeOptions(command);
  command
    .option('--snapshot <id>', 'start from this snapshot rather than a template')
    .option('-p, --port <number>', 'a port to be reached from outside; may be repeated', parsePorts)
    .option('--get-or-create', 'with --name: take the one of that name if there is one')
    .option('--image-command', 'with --image: start the own command of the image with the sandbox')
    .option('--dry-run', 'create nothing; show the platform, and what would be refused or ignored');
  withSandboxOptions(command);
  withCommonOptions(command)
    .addHelpText(
      'after',
      `
  cay create --name my-box --memory 2g --timeout 2h
  cay create --name web --port 8000 -- python3 -m http.server 8000
  cay create --name my-box --get-or-create
  cay create --name db --image redis:7 --image-command`,
    )
    .action(async (cmd: string[], options: Options) => {
      const request = requestOf(cmd, options);
      if (options.dryRun) return dryRun(composition, request, options);
      const { info } = await make(composition, request, options);
      if (options.json) printJson(info);
      else print(info.id);
    });
};

async function make(
  composition: Composition,
  request: CreateSandboxInput,
  options: Options,
): Promise<Sandbox> {
  try {
    return await withServer(composition, options, async (client) => {
      if (options.image !== undefined) await imageFirst(client, options.image);
      using _ = showWaiting('creating a sandbox');
      return client.create(request);
    });
  } catch (error) {
    if (!isCayError(error, 'already_exists')) throw error;
    throw withHint(error, 'choose another --name, or give --get-or-create to take the one that exists');
  }
}

function requestOf(cmd: string[], options: Options): CreateSandboxInput {
  const { timeout, onTimeout, port, getOrCreate } = options;
  return {
    ...sandboxRequest(options),
    ...(cmd.length > 0 && { cmd }),
    ...(timeout !== undefined && { timeoutMs: msOf(timeout) }),
    ...(onTimeout !== undefined && { onTimeout }),
    ...(port && { ports: port }),
    ...(options.imageCommand && { imageCommand: true }),
    ...(getOrCreate && { getOrCreate }),
    ...(options.snapshot !== undefined && { snapshot: options.snapshot as SnapshotId }),
    ...(options.onBoot && { onBoot: options.onBoot }),
    idle: idleOf(options),
  };
}

/** Exits with the code of the refusal, if there is one. */
async function dryRun(
  composition: Composition,
  request: CreateSandboxInput,
  options: Options,
): Promise<void> {
  const validation = await withServer(composition, options, (client) =>
    Sandbox.validate(request, client.options),
  );
  const { ok, platform, problems } = validation;
  const refusal = problems.find(({ refused }) => refused);
  if (refusal) process.exitCode = ERRORS[refusal.code].exitCode;
  if (options.json) return printJson(validation);
  print(
    ok
      ? `${colour.green('would be created')} on ${platform}`
      : `${colour.red('would be refused')}${platform === null ? '' : ` on ${platform}`}`,
  );
  for (const problem of problems) {
    const { code, refused } = problem;
    const { message, hint } = inWords(problem);
    print(`  ${refused ? colour.red(code) : colour.yellow('ignored')} ${printable(message)}`);
    if (hint !== undefined) print(`    ${colour.cyan('hint:')} ${printable(hint)}`);
  }
}

function inWords({ code, field = '', message, hint }: Problem): CayError {
  const details = field.startsWith('limits.') ? { limit: field.slice('limits.'.length) } : {};
  return inCliWords(
    new CayError(code, withFlag(message, field), { details, ...(hint !== undefined && { hint }) }),
  );
}
