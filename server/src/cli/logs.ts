import type { ExecEvent } from '@cay/sdk/client';
import { openClient } from './client.ts';
import { withCommonOptions } from './common-options.ts';
import { note, printJson } from './output.ts';
import type { CommonOptions } from './settings.ts';
import { parseCount } from './units.ts';
import type { Verb } from './verb.ts';

type Options = CommonOptions & { follow?: boolean; offset?: number };

export const logsVerb: Verb = (program) => {
  const command = program
    .command('logs')
    .description("show a command's output that is kept")
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('[command-id]', 'which command; the one started last if absent')
    .option('-f, --follow', 'go on until the command ends')
    .option('--offset <bytes>', 'begin here', parseCount);
  withCommonOptions(command).action(async (ref: string, id: string | undefined, options: Options) => {
    const { sandbox: find, transport } = openClient(options);
    const sandbox = await find(ref);
    const wanted = id ?? (await sandbox.commands()).at(-1)?.id;
    if (wanted === undefined) return note('no command was started here yet');
    const path = `/v1/sandboxes/${sandbox.id}/commands/${encodeURIComponent(wanted)}/output`;
    const query = { follow: options.follow === true, encoding: options.json ? 'utf8' : 'base64', offset: options.offset };
    for await (const event of transport.lines<ExecEvent>('GET', path, { query })) show(event, options.json === true);
  });
};

function show(event: ExecEvent, json: boolean): void {
  if (json) return printJson(event);
  if (event.type === 'stderr') process.stderr.write(Buffer.from(event.data, 'base64'));
  else if (event.type === 'stdout' || event.type === 'pty') process.stdout.write(Buffer.from(event.data, 'base64'));
  else if (event.type === 'gap') note(`(${event.bytes} bytes are no longer kept)`);
}
