import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { errorColour, note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const turnVerb: Verb = (program) => {
  const command = program
    .command('turn')
    .description('wait for running commands, take a snapshot, and print the number of the turn')
    .argument('<sandbox>', 'its id, name or the beginning of its id')
    .option('--wait <time>', 'how long running commands are waited for (default: 10s)', parseDuration)
    .option('--name <name>', 'a name as well')
    .option('--memory', 'keep its processes too');
  withCommonOptions(command).action(
    async (ref: string, options: CommonOptions & { wait?: number; name?: string; memory?: boolean }) => {
      const { wait, name, memory } = options;
      const sandbox = await openClient(options).sandbox(ref);
      const snapshot = await sandbox.turn({
        ...(wait !== undefined && { waitMs: wait }),
        ...(name !== undefined && { name }),
        ...(memory && { memory }),
      });
      if (options.json) return printJson(snapshot);
      print(String(snapshot.turn));
      if (!snapshot.quiet)
        note(
          `${errorColour.yellow('note:')} commands were still running; the snapshot has a part of what they write`,
        );
    },
  );
};
