import type { ExecEvent } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseCount, parseSince, parseSize } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & {
  follow?: boolean;
  offset?: number;
  since?: Date;
  tail?: number;
  limit?: number;
};

export const logsVerb: Verb = (program) => {
  const command = program
    .command('logs')
    .description("show a command's output that is kept")
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument(
      '[command-id]',
      'which command; if absent, the one that the sandbox was created with, else the one started last',
    )
    .option('-f, --follow', 'go on until the command ends')
    .option(
      '--since <time>',
      'only what was recorded since then: 10m ago, or 2026-01-31T12:00:00Z',
      parseSince,
    )
    .option('--tail <size>', 'only so much before the end, such as 64k', parseSize)
    .option('--limit <size>', 'stop after so much', parseSize)
    .option('--offset <bytes>', 'begin here', parseCount);
  withCommonOptions(command).action(async (ref: string, id: string | undefined, options: Options) => {
    const { json = false, follow = false, offset, since, tail, limit } = options;
    const sandbox = await openClient(options).sandbox(ref);
    const asked = { command: id, follow, offset, since, tailBytes: tail, limitBytes: limit };
    let any = false;
    for await (const event of sandbox.logs({ ...asked, encoding: json ? 'utf8' : 'base64' })) {
      any = true;
      show(event, json);
    }
    if (!any) note('no command was started here yet');
  });
};

function show(event: ExecEvent, json: boolean): void {
  if (json) return printJson(event);
  if (event.type === 'stderr') process.stderr.write(Buffer.from(event.data, 'base64'));
  else if (event.type === 'stdout' || event.type === 'pty')
    process.stdout.write(Buffer.from(event.data, 'base64'));
  else if (event.type === 'gap') note(`(${event.bytes} bytes are no longer kept)`);
}
