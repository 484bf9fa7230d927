import type { ExposedPort, Sandbox } from '@cay/sdk/client';
import type { Command } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parsePort } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Ports {
  listening: { port: number; address?: string; command?: string }[];
  exposed: ExposedPort[];
}

const SANDBOX = 'id, name or beginning of an id';

export const portVerb: Verb = (program) => {
  const command = program.command('port').description('the ports of a sandbox, and their addresses');

  const list = command
    .command('ls')
    .description('list the ports that are exposed and those that something listens on')
    .argument('<sandbox>', SANDBOX);
  withCommonOptions(list).action(async (ref: string, options: CommonOptions) => {
    const client = openClient(options);
    const { id } = await client.sandbox(ref);
    const ports = await client.transport.json<Ports>('GET', `/v1/sandboxes/${id}/ports`);
    if (options.json) return printJson(ports);
    const listening = new Set(ports.listening.map(({ port }) => port));
    const exposed = new Map(ports.exposed.map((port) => [port.port, port]));
    const rows = [...new Set([...exposed.keys(), ...listening])]
      .sort((one, other) => one - other)
      .map((port) => rowOf(port, exposed.get(port), listening.has(port)));
    print(table(['PORT', 'LISTENING', 'EXPOSED', 'OPEN'], rows));
  });

  adding(command.command('add'));

  const remove = command
    .command('rm')
    .description('make ports unreachable from outside again')
    .argument('<sandbox>', SANDBOX)
    .argument('<port...>', 'which', (text: string, before: number[] | undefined) => [
      ...(before ?? []),
      parsePort(text),
    ]);
  withCommonOptions(remove).action(async (ref: string, ports: number[], options: CommonOptions) => {
    const sandbox = await openClient(options).sandbox(ref);
    for (const port of ports) {
      await sandbox.unexpose(port);
      if (options.json) printJson({ port });
      else print(String(port));
    }
  });
};

export const exposeVerb: Verb = (program) => adding(program.command('expose'));

function adding(command: Command): void {
  command
    .description('make a port of a sandbox reachable through the server, and print its address')
    .argument('<sandbox>', SANDBOX)
    .argument('<port>', 'the port that a program in the sandbox listens on', parsePort)
    .option('--public', 'open to everybody who knows the address, without a token');
  withCommonOptions(command)
    .addHelpText(
      'after',
      `
The address has the token of a private port in it: who has the address can open the port.

  cay exec -d my-box -- python3 -m http.server 8000
  cay expose my-box 8000`,
    )
    .action(async (ref: string, port: number, options: CommonOptions & { public?: boolean }) => {
      const sandbox = await openClient(options).sandbox(ref);
      await expose(sandbox, port, options);
    });
}

async function expose(
  sandbox: Sandbox,
  port: number,
  options: CommonOptions & { public?: boolean },
): Promise<void> {
  const exposed = await sandbox.expose(port, { visibility: options.public ? 'public' : 'private' });
  if (options.json) return printJson(exposed);
  print(exposed.openUrl);
  if (exposed.visibility === 'public') note(colour.dim('open to everybody who knows this address'));
}

function rowOf(port: number, exposed: ExposedPort | undefined, listening: boolean): string[] {
  return [
    String(port),
    listening ? colour.green('yes') : colour.dim('no'),
    exposed?.visibility ?? colour.dim('no'),
    exposed ? printable(exposed.openUrl) : colour.dim('-'),
  ];
}
