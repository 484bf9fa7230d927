import { withCommonOptions } from '../lib/common-options.ts';
import { eachSandbox } from '../lib/each-sandbox.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const stopVerb: Verb = (program) => {
  const command = program
    .command('stop')
    .description("end a sandbox's processes and keep its files")
    .argument('<sandbox...>', 'ids, names or beginnings of ids')
    .option(
      '-t, --time <time>',
      'how long processes have before they are killed (default: 10s)',
      parseDuration,
    )
    .option('-f, --force', 'also if what it has changed cannot be written to buckets: that is lost');
  withCommonOptions(command).action(
    (refs: string[], options: CommonOptions & { force?: boolean; time?: number }) =>
      eachSandbox(refs, options, async (sandbox) => {
        const info = await sandbox.stop({ graceMs: options.time, force: options.force });
        if (options.json) printJson(info);
        else print(info.name ?? info.id);
      }),
  );
};
