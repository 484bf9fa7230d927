import { withCommonOptions } from '../lib/common-options.ts';
import { eachSandbox } from '../lib/each-sandbox.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

export const startVerb: Verb = (program) => {
  const command = program
    .command('start')
    .description('start a stopped or failed sandbox with the files it had')
    .argument('<sandbox...>', 'ids, names or beginnings of ids');
  withCommonOptions(command).action((refs: string[], options: CommonOptions) =>
    eachSandbox(refs, options, async (sandbox) => {
      const info = await sandbox.start();
      if (options.json) printJson(info);
      else print(info.name ?? info.id);
    }),
  );
};
