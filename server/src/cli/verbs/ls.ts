import { Sandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, stateText, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes, pairs } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  label?: Record<string, string>;
  state?: Sandbox['info']['state'];
  quiet?: boolean;
}

export const lsVerb: Verb = (program) => {
  const command = program
    .command('ls')
    .description('list sandboxes, newest first')
    .option('-l, --label <key=value>', 'only those with this label; may be repeated', pairs())
    .option(
      '--state <state>',
      'only those in this state: creating, active, paused, stopped, failed or destroying',
    )
    .option('-q, --quiet', 'ids alone');
  withCommonOptions(command).action(async (options: Options) => {
    const { options: connection } = openClient(options);
    const found: Sandbox['info'][] = [];
    for await (const { info } of Sandbox.list({ ...connection, labels: options.label, state: options.state }))
      found.push(info);
    if (options.json) return printJson(found);
    if (options.quiet) return found.forEach(({ id }) => print(id));
    const now = Date.now();
    const several = found.some(({ platform }) => platform !== undefined);
    const rows = found.map((info) => [
      info.id,
      info.name ?? colour.dim('-'),
      info.pausedAs === null
        ? stateText(info.state)
        : stateText(info.state).replace(info.state, info.pausedAs),
      info.template,
      ...(several ? [info.platform ?? '-'] : []),
      info.runtime ?? '-',
      `${info.limits.cpus ?? '-'} × ${formatBytes(info.limits.memoryBytes)}`,
      formatAge(now - info.createdAtMs),
      printable(
        Object.entries(info.labels)
          .map(([key, value]) => `${key}=${value}`)
          .join(' '),
      ),
    ]);
    const platform = several ? ['PLATFORM'] : [];
    print(
      table(['ID', 'NAME', 'STATE', 'TEMPLATE', ...platform, 'RUNTIME', 'LIMITS', 'AGE', 'LABELS'], rows),
    );
  });
};
