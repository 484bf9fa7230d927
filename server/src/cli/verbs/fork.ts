import { atSnapshot } from '../lib/at-snapshot.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { pairs, parseCount } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  number: number;
  name?: string;
  label?: Record<string, string>;
  from?: string;
  filesOnly?: boolean;
  memory?: boolean;
}

export const forkVerb: Verb = (program) => {
  const command = program
    .command('fork')
    .description(
      'make sandboxes that go on from what this one is, with its processes where the isolation can; prints their ids',
    )
    .argument('<sandbox>', 'its id, name or the beginning of its id')
    .option('-n, --number <number>', 'how many', parseCount, 1)
    .option('--name <prefix>', 'their names: this and -1, -2 and so on')
    .option('--from <snapshot>', 'a snapshot’s id or name, or a turn’s number, rather than now')
    .option('--memory', 'fail where processes cannot go on')
    .option('--files-only', 'without its processes')
    .option('-l, --label <key=value>', 'a label; may be repeated', pairs());
  withCommonOptions(command).action(async (ref: string, options: Options) => {
    const { number, name, label, from, filesOnly, memory } = options;
    const sandbox = await openClient(options).sandbox(ref);
    const request = {
      ...(name !== undefined && { namePrefix: name }),
      ...(label && { labels: label }),
      ...(from !== undefined && { from }),
      ...(filesOnly ? { memory: false } : memory && { memory }),
    };
    const children = await atSnapshot(ref, () => sandbox.fork(number, request));
    if (options.json) return printJson(children.map(({ info }) => info));
    for (const { info } of children) print(info.name ?? info.id);
    const volumes = sandbox.info.mounts.filter(({ type }) => type !== 'tmpfs');
    if (volumes.length > 0)
      note(`they share with it what is mounted: ${volumes.map(({ path }) => path).join(', ')}`);
  });
};
