import type { CayEvent, EventPage } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printable } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseCount } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { follow?: boolean; after?: number; sandbox?: string };

export const eventsVerb: Verb = (program) => {
  const command = program
    .command('events')
    .description('show what has happened')
    .option('-f, --follow', 'go on as it happens')
    .option('--after <id>', 'only what came after this event', parseCount)
    .option('--sandbox <sandbox>', 'of this sandbox alone: id, name or beginning of an id');
  withCommonOptions(command).action(async (options: Options) => {
    const client = openClient(options);
    const { sandbox: ref } = options;
    // What is gone still has its events, under its id.
    const sandbox =
      ref === undefined || /^sbx_[a-z0-9]{20}$/.test(ref) ? ref : (await client.sandbox(ref)).id;
    let after = options.after ?? 0;
    for (;;) {
      const page = await client.transport.json<EventPage>('GET', '/v1/events', { query: { after, sandbox } });
      for (const event of page.events) show(event, options);
      if (page.events.length === 0) break;
      after = page.last;
    }
    if (!options.follow) return;
    for await (const event of client.transport.lines<CayEvent>('GET', '/v1/events', {
      query: { after, sandbox },
    }))
      show(event, options);
  });
};

function show(event: CayEvent, options: Options): void {
  if (options.json) return print(JSON.stringify(event));
  const data = Object.entries(event.data).map(
    ([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  print(
    `${colour.dim(new Date(event.atMs).toISOString())}  ${event.type.padEnd(20)} ${event.sandbox ?? '-'}  ${printable(data.join(' '))}`.trimEnd(),
  );
}
