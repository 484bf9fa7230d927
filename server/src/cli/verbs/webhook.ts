import type { CreatedWebhook, Delivery, Webhook } from '@cay/sdk/client';
import { CayError } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import { removeEach } from '../lib/remove-each.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

const many = (text: string, before: string[] | undefined) => [...(before ?? []), text];
const pathOf = (id: string) => `/v1/webhooks/${encodeURIComponent(id)}`;

export const webhookVerb: Verb = (program) => {
  const command = program.command('webhook').description('addresses that events are sent to');

  const add = command
    .command('add')
    .description('have events sent to an address, and print the secret that signs them, this once')
    .argument('<url>', 'where to')
    .option('--type <type>', 'only these, such as sandbox.created or sandbox.*; may be repeated', many);
  withCommonOptions(add).action(async (url: string, options: CommonOptions & { type?: string[] }) => {
    const json = { url, ...(options.type && { types: options.type }) };
    const created = await openClient(options).transport.json<CreatedWebhook>('POST', '/v1/webhooks', {
      json,
    });
    if (options.json) return printJson(created);
    print(created.secret);
    note(colour.dim(`${created.webhook.id}; shown this once`));
  });

  withCommonOptions(command.command('ls').description('list webhooks and how far each is')).action(
    async (options: CommonOptions) => {
      const { webhooks } = await openClient(options).transport.json<{ webhooks: Webhook[] }>(
        'GET',
        '/v1/webhooks',
      );
      if (options.json) return printJson(webhooks);
      const rows = webhooks.map((webhook) => [
        webhook.id,
        printable(webhook.url),
        webhook.types.join(',') || 'all',
        String(webhook.deliveredTo),
        stateOf(webhook),
      ]);
      print(table(['ID', 'URL', 'TYPES', 'UP TO EVENT', 'STATE'], rows));
    },
  );

  const remove = command
    .command('rm')
    .description('remove webhooks')
    .argument('<webhook-id...>', 'their ids, as "cay webhook ls" shows them');
  withCommonOptions(remove).action(async (ids: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    const { webhooks } = await transport.json<{ webhooks: Webhook[] }>('GET', '/v1/webhooks');
    await removeEach(ids, options, {
      kind: 'Webhook',
      list: 'cay webhook ls',
      field: 'id',
      find: async (ref) => webhooks.find(({ id }) => id === ref)?.id,
      remove: (id) => transport.json('DELETE', pathOf(id)),
    });
  });

  const test = command
    .command('test')
    .description('send an event to a webhook, and enable it again if it accepts that')
    .argument('<webhook-id>', 'its id');
  withCommonOptions(test).action(async (id: string, options: CommonOptions) => {
    const delivery = await openClient(options).transport.json<Delivery>('POST', `${pathOf(id)}/test`);
    if (options.json) printJson(delivery);
    else if (delivery.ok) print(`it answered ${delivery.status} after ${delivery.durationMs} ms`);
    if (!delivery.ok) throw notTaken(delivery);
  });
};

function notTaken({ error = 'no answer' }: Delivery): CayError {
  return new CayError('unavailable', `The webhook did not accept the event: ${error}`, {
    hint: 'check its address and what listens there',
  });
}

function stateOf({ disabledAtMs, failingSinceMs, attempts, lastError }: Webhook): string {
  const error = printable(lastError ?? '');
  if (disabledAtMs !== null)
    return colour.red(`disabled ${formatAge(Date.now() - disabledAtMs)} ago: ${error}`);
  if (failingSinceMs !== null)
    return colour.yellow(
      `failing for ${formatAge(Date.now() - failingSinceMs)}, ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}: ${error}`,
    );
  return colour.green('ok');
}
