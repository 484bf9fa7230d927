import { withCommonOptions } from '../lib/common-options.ts';
import { eachSandbox } from '../lib/each-sandbox.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

export const resumeVerb: Verb = (program) => {
  const command = program
    .command('resume')
    .description('wake paused sandboxes')
    .argument('<sandbox...>', 'ids, names or beginnings of ids');
  withCommonOptions(command).action((refs: string[], options: CommonOptions) =>
    eachSandbox(refs, options, async (sandbox) => {
      const info = await sandbox.resume();
      if (options.json) printJson(info);
      else print(info.name ?? info.id);
    }),
  );
};
