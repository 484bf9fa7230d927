import { withCommonOptions } from './common-options.ts';
import { print, printJson } from './output.ts';
import { sandboxRequest, withSandboxOptions, type SandboxOptions } from './sandbox-options.ts';
import type { CommonOptions } from './settings.ts';
import { parseDuration, parsePort } from './units.ts';
import type { Verb } from './verb.ts';
import { withServer } from './with-server.ts';

type Options = CommonOptions &
  SandboxOptions & { timeout?: number; onTimeout?: 'stop' | 'destroy'; port?: number[]; getOrCreate?: boolean };

const parsePorts = (text: string, before: number[] | undefined) => [...(before ?? []), parsePort(text)];

export const createVerb: Verb = (program, composition) => {
  const command = program
    .command('create')
    .description('make a sandbox that stays, and print its id')
    .argument('[command...]', 'a command that is started with the sandbox')
    .passThroughOptions()
    .option('--timeout <time>', 'how long it may live, such as 2h', parseDuration)
    .option('--on-timeout <what>', 'stop or destroy (default: stop)')
    .option('-p, --port <number>', 'a port to be reached from outside; may be repeated', parsePorts)
    .option('--get-or-create', 'with --name: take the one of that name if there is one');
  withSandboxOptions(command);
  withCommonOptions(command).action(async (cmd: string[], options: Options) => {
    const { timeout, onTimeout, port, getOrCreate } = options;
    const { info } = await withServer(composition, options, (client) =>
      client.create({
        ...sandboxRequest(options),
        ...(cmd.length > 0 && { cmd }),
        ...(timeout !== undefined && { timeoutMs: timeout }),
        ...(onTimeout !== undefined && { onTimeout }),
        ...(port && { ports: port }),
        ...(getOrCreate && { getOrCreate }),
      }),
    );
    if (options.json) printJson(info);
    else print(info.id);
  });
};
