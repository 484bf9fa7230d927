import { withCommonOptions } from './common-options.ts';
import { eachSandbox } from './each-sandbox.ts';
import { print, printJson } from './output.ts';
import type { CommonOptions } from './settings.ts';
import type { Verb } from './verb.ts';

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
