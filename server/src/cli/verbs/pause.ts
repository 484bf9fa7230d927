import type { Pause } from '@cay/sdk/client';
import { Option } from 'commander';
import { withCommonOptions } from '../lib/common-options.ts';
import { eachSandbox } from '../lib/each-sandbox.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const pauseVerb: Verb = (program) => {
  const command = program
    .command('pause')
    .description('pause sandboxes; the next call that needs one wakes it')
    .argument('<sandbox...>', 'ids, names or beginnings of ids')
    .addOption(
      new Option(
        '--as <how>',
        'frozen stays in memory, suspended keeps only files, hibernated goes to disk, archived goes to the archive store',
      ).choices(['frozen', 'suspended', 'hibernated', 'archived']),
    )
    .option('--wait <time>', 'how long running commands are waited for (default: not)', parseDuration);
  withCommonOptions(command).action(
    (refs: string[], options: CommonOptions & { as?: Pause; wait?: number }) =>
      eachSandbox(refs, options, async (sandbox) => {
        const { as, wait } = options;
        const info = await sandbox.pause({ ...(as && { as }), ...(wait !== undefined && { waitMs: wait }) });
        if (options.json) printJson(info);
        else print(`${info.name ?? info.id} ${info.pausedAs}`);
      }),
  );
};
