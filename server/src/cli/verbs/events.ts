import type { CayEvent, EventPage } from '@cay/sdk/client';
import { openClient, type Client } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printable } from '../lib/output.ts';
import { isLostConnection, reattach } from '../lib/reattach.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseCount, parseSince } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & {
  follow?: boolean;
  after?: number;
  since?: Date;
  tail?: number;
  sandbox?: string;
};

/** Shown where nothing says how many. */
const DEFAULT_TAIL = 100;
const MOST_TAIL = 100_000;

export const eventsVerb: Verb = (program) => {
  const command = program
    .command('events')
    .description('show what has happened, and who did it')
    .argument('[sandbox]', 'of this sandbox alone: id, name or beginning of an id')
    .option('-f, --follow', 'go on as it happens; without --tail, --since or --after, only what is new')
    .option(
      '-n, --tail <number>',
      `only the newest so many, at most ${MOST_TAIL} (default: ${DEFAULT_TAIL})`,
      parseCount,
    )
    .option('--since <time>', 'only since then: 10m ago, or 2026-01-31T12:00:00Z', parseSince)
    .option('--after <id>', 'only what came after this event', parseCount)
    .option('--sandbox <sandbox>', 'the same as the argument');
  withCommonOptions(command)
    .addHelpText('after', '\n  cay events --since 1h\n  cay events -f my-box\n  cay events --tail 20 --json')
    .action(async (ref: string | undefined, options: Options) => {
      const client = openClient(options);
      const sandbox = await sandboxOf(client, ref ?? options.sandbox);
      const show = options.json ? showJson : showLine;
      let after = await showPast(client, sandbox, options, show);
      while (options.follow) {
        try {
          for await (const event of client.transport.lines<CayEvent>('GET', '/v1/events', {
            query: { after, sandbox },
          })) {
            show(event);
            after = event.id;
          }
          return;
        } catch (error) {
          if (!isLostConnection(error)) throw error;
          await reattach(() => page(client, { after, sandbox, limit: 1 }), {
            what: 'the connection to the events',
          });
        }
      }
    });
};

/** A sandbox that is gone still has its events, under its id. */
async function sandboxOf(client: Client, ref: string | undefined): Promise<string | undefined> {
  return ref === undefined || /^sbx_[a-z0-9]{20}$/.test(ref) ? ref : (await client.sandbox(ref)).id;
}

type Query = {
  after?: number;
  since?: string;
  sandbox: string | undefined;
  limit?: number;
  tail?: number;
};

const page = ({ transport }: Client, query: Query) =>
  transport.json<EventPage>('GET', '/v1/events', { query });

/** Shows what was asked for of the past, and gives the event after which to go on. */
async function showPast(
  client: Client,
  sandbox: string | undefined,
  options: Options,
  show: (event: CayEvent) => void,
): Promise<number> {
  const { follow, tail } = options;
  const since = options.since?.toISOString();
  const bounded = options.after !== undefined || since !== undefined;
  const newest = tail ?? (bounded ? undefined : follow ? 0 : DEFAULT_TAIL);
  const begin = { after: options.after, since, tail: newest, sandbox };
  let { events, last } = await page(client, begin);
  while (events.length > 0) {
    for (const event of events) show(event);
    ({ events, last } = await page(client, { after: last, sandbox }));
  }
  return last;
}

function showJson(event: CayEvent): void {
  print(JSON.stringify(event));
}

/** A quota that is changed is recorded whole, with every amount that is not bounded. */
function withoutNulls(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null));
}

function showLine({ atMs, type, sandbox, key, actor, outcome, data }: CayEvent): void {
  const fields = Object.entries(data).map(
    ([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(withoutNulls(value))}`,
  );
  const by = key === null ? 'the server' : `key ${actor ?? key}`;
  const parts = [
    colour.dim(new Date(atMs).toISOString()),
    type.padEnd(20),
    (sandbox ?? '-').padEnd(24),
    colour.cyan(`by ${printable(by)}`),
    ...(outcome === 'ok' ? [] : [colour.red(outcome)]),
    printable(fields.join(' ')),
  ];
  print(parts.join('  ').trimEnd());
}
