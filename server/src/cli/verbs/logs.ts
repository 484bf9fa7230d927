import type { CommandInfo, ExecEvent, Sandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, printJson } from '../lib/output.ts';
import { isLostConnection, reattach } from '../lib/reattach.ts';
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
    const sandbox = await openClient(options).sandbox(ref);
    const command = id ?? usual(await sandbox.commands());
    if (command === undefined) return note(`no output of a command is kept in ${ref}`);
    for await (const event of logs(sandbox, command, options)) show(event, options.json ?? false);
  });
};

/** The command that the sandbox was created with, else the one started last. */
function usual(commands: readonly CommandInfo[]): string | undefined {
  return (commands.find(({ id }) => id === 'main') ?? commands.at(-1))?.id;
}

/** With `--follow` it goes on over lost connections, at the byte where they were lost. */
async function* logs(sandbox: Sandbox, command: string, options: Options): AsyncGenerator<ExecEvent> {
  const { json = false, follow = false, offset, since, tail, limit } = options;
  const bounds = { command, follow, encoding: json ? 'utf8' : 'base64', limitBytes: limit } as const;
  let stream = sandbox.logs({ ...bounds, offset, since, tailBytes: tail });
  let at: number | undefined;
  for (;;) {
    try {
      for await (const event of stream) {
        if ('offset' in event) at = event.offset + sizeOf(event, json);
        yield event;
      }
      return;
    } catch (error) {
      // With a limit, what is left of it would have to be known.
      if (!follow || limit !== undefined || !isLostConnection(error)) throw error;
      await reattach(() => sandbox.command(command), { what: `the connection to command ${command}` });
      stream = sandbox.logs({
        ...bounds,
        ...(at === undefined ? { offset, since, tailBytes: tail } : { offset: at }),
      });
    }
  }
}

/**
 * Bytes that were not text have become another character: their number is unknown, and the event is repeated.
 */
function sizeOf(event: Extract<ExecEvent, { offset: number }>, text: boolean): number {
  if (event.type === 'gap') return event.bytes;
  if (text) return event.data.includes('\uFFFD') ? 0 : Buffer.byteLength(event.data);
  return Buffer.byteLength(event.data, 'base64');
}

function show(event: ExecEvent, json: boolean): void {
  if (json) return printJson(event);
  if (event.type === 'stderr') process.stderr.write(Buffer.from(event.data, 'base64'));
  else if (event.type === 'stdout' || event.type === 'pty')
    process.stdout.write(Buffer.from(event.data, 'base64'));
  else if (event.type === 'gap') note(`(${event.bytes} bytes are no longer kept)`);
}
