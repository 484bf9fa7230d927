import { ERRORS, Sandbox, type CreateSandboxInput, type OnTimeout, type SnapshotId } from '@cay/sdk/client';
import { Option } from 'commander';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable } from '../lib/output.ts';
import { sandboxRequest, withSandboxOptions, type SandboxOptions } from '../lib/sandbox-options.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseDuration, parsePort } from '../lib/units.ts';
import type { Composition, Verb } from '../verb.ts';
import { withServer } from '../lib/with-server.ts';

interface Options extends CommonOptions, SandboxOptions {
  timeout?: number;
  onTimeout?: OnTimeout;
  port?: number[];
  getOrCreate?: boolean;
  dryRun?: boolean;
  snapshot?: string;
  freezeAfter?: number;
  suspendAfter?: number;
  hibernateAfter?: number;
  archiveAfter?: number;
  destroyAfter?: number;
  onBoot?: 'start' | 'stay';
}

const parsePorts = (text: string, before: number[] | undefined) => [...(before ?? []), parsePort(text)];

export const createVerb: Verb = (program, composition) => {
  const command = program
    .command('create')
    .description('make a sandbox that stays, and print its id')
    .argument('[command...]', 'a command that is started with the sandbox')
    .passThroughOptions()
    .option('--timeout <time>', 'how long it may live, such as 2h', parseDuration)
    .addOption(
      new Option('--on-timeout <what>', 'what happens then (default: pause)').choices([
        'pause',
        'archive',
        'stop',
        'destroy',
      ]),
    )
    .option('--freeze-after <time>', 'freeze it when nobody has used it for so long', parseDuration)
    .option('--suspend-after <time>', 'keep nothing but its files then', parseDuration)
    .option('--hibernate-after <time>', 'put its memory on disk then', parseDuration)
    .option('--archive-after <time>', 'move it to the archive store then', parseDuration)
    .option('--destroy-after <time>', 'remove it then', parseDuration)
    .addOption(
      new Option('--on-boot <what>', 'start it again when the machine was restarted').choices([
        'start',
        'stay',
      ]),
    )
    .option('--snapshot <id>', 'start from this snapshot rather than a template')
    .option('-p, --port <number>', 'a port to be reached from outside; may be repeated', parsePorts)
    .option('--get-or-create', 'with --name: take the one of that name if there is one')
    .option('--dry-run', 'only tell where it would be made, and what would be refused or not be honoured');
  withSandboxOptions(command);
  withCommonOptions(command).action(async (cmd: string[], options: Options) => {
    const request = requestOf(cmd, options);
    if (options.dryRun) return dryRun(composition, request, options);
    const { info } = await withServer(composition, options, (client) => client.create(request));
    if (options.json) printJson(info);
    else print(info.id);
  });
};

function requestOf(cmd: string[], options: Options): CreateSandboxInput {
  const { timeout, onTimeout, port, getOrCreate } = options;
  return {
    ...sandboxRequest(options),
    ...(cmd.length > 0 && { cmd }),
    ...(timeout !== undefined && { timeoutMs: timeout }),
    ...(onTimeout !== undefined && { onTimeout }),
    ...(port && { ports: port }),
    ...(getOrCreate && { getOrCreate }),
    ...(options.snapshot !== undefined && { snapshot: options.snapshot as SnapshotId }),
    ...(options.onBoot && { onBoot: options.onBoot }),
    idle: {
      ...(options.freezeAfter !== undefined && { freezeAfterMs: options.freezeAfter }),
      ...(options.suspendAfter !== undefined && { suspendAfterMs: options.suspendAfter }),
      ...(options.hibernateAfter !== undefined && { hibernateAfterMs: options.hibernateAfter }),
      ...(options.archiveAfter !== undefined && { archiveAfterMs: options.archiveAfter }),
      ...(options.destroyAfter !== undefined && { destroyAfterMs: options.destroyAfter }),
    },
  };
}

/** Exits as the create would. */
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
      ? `${colour.green('would be made')} on ${platform}`
      : `${colour.red('would be refused')}${platform === null ? '' : ` on ${platform}`}`,
  );
  for (const { code, message, hint, refused } of problems) {
    print(`  ${refused ? colour.red(code) : colour.yellow('not honoured')} ${printable(message)}`);
    if (hint !== undefined) print(`    ${colour.cyan('hint:')} ${printable(hint)}`);
  }
}
