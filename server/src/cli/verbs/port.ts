import type { ExposedPort, PublishedPort, Sandbox } from '@cay/sdk/client';
import type { Command } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatPublished, parseHostPort, parsePublish } from '../lib/publish-options.ts';
import { parsePort } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Ports {
  listening: { port: number; address?: string; command?: string }[];
  exposed: ExposedPort[];
  published: PublishedPort[];
}

const SANDBOX = 'id, name or beginning of an id';

export const portVerb: Verb = (program) => {
  const command = program.command('port').description('the ports of a sandbox, and their addresses');

  const list = command
    .command('ls')
    .description('list the ports that are exposed or published, and those that something listens on')
    .argument('<sandbox>', SANDBOX);
  withCommonOptions(list).action(async (ref: string, options: CommonOptions) => {
    const client = openClient(options);
    const { id } = await client.sandbox(ref);
    const ports = await client.transport.json<Ports>('GET', `/v1/sandboxes/${id}/ports`);
    if (options.json) return printJson(ports);
    const listening = new Set(ports.listening.map(({ port }) => port));
    const exposed = new Map(ports.exposed.map((port) => [port.port, port]));
    const published = Map.groupBy(ports.published, ({ port }) => port);
    const rows = [...new Set([...exposed.keys(), ...listening, ...published.keys()])]
      .sort((one, other) => one - other)
      .map((port) => rowOf(port, exposed.get(port), published.get(port) ?? [], listening.has(port)));
    print(table(['PORT', 'LISTENING', 'EXPOSED', 'PUBLISHED', 'OPEN'], rows));
    for (const { problem } of ports.published)
      if (problem !== undefined) note(colour.yellow(printable(problem)));
  });

  adding(command.command('add'));

  const publish = command
    .command('publish')
    .description("make a port of the server's machine lead to a port of a sandbox")
    .argument('<sandbox>', SANDBOX)
    .argument(
      '<ports>',
      'the port of the machine and the port inside, such as 8080:80 or 5353:53/udp; one number takes a free port of the machine',
      parsePublish,
    );
  withCommonOptions(publish).action(
    async (ref: string, wanted: ReturnType<typeof parsePublish>, options: CommonOptions) => {
      const published = await (await openClient(options).sandbox(ref)).publish(wanted);
      if (options.json) printJson(published);
      else print(formatPublished(published));
    },
  );

  const unpublish = command
    .command('unpublish')
    .description("stop leading a port of the server's machine to a sandbox")
    .argument('<sandbox>', SANDBOX)
    .argument('<port>', 'the port of the machine, such as 8080 or 5353/udp', parseHostPort);
  withCommonOptions(unpublish).action(
    async (ref: string, { hostPort, protocol }: ReturnType<typeof parseHostPort>, options: CommonOptions) => {
      await (await openClient(options).sandbox(ref)).unpublish(hostPort, { protocol });
      if (options.json) printJson({ hostPort, protocol });
      else print(protocol === 'udp' ? `${hostPort}/udp` : String(hostPort));
    },
  );

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

function rowOf(
  port: number,
  exposed: ExposedPort | undefined,
  published: PublishedPort[],
  listening: boolean,
): string[] {
  return [
    String(port),
    listening ? colour.green('yes') : colour.dim('no'),
    exposed?.visibility ?? colour.dim('no'),
    published.map(formatPublished).join(', ') || colour.dim('no'),
    exposed ? printable(exposed.openUrl) : colour.dim('-'),
  ];
}
