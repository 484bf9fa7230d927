import { atSnapshot } from '../lib/at-snapshot.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

export const rollbackVerb: Verb = (program) => {
  const command = program
    .command('rollback')
    .description('put a sandbox back to a snapshot or turn; a snapshot of its current state is taken first')
    .argument('<sandbox>', 'its whole id or its name')
    .argument('<to>', 'a snapshot’s id or name, or the number of a turn')
    .option('--memory', 'restore the processes of the snapshot, too')
    .option('--force', 'also while agent tools are running');
  withCommonOptions(command).action(
    async (ref: string, to: string, options: CommonOptions & { memory?: boolean; force?: boolean }) => {
      const sandbox = await openClient(options).sandbox(ref, { prefix: false });
      const { sandbox: info, kept } = await atSnapshot(ref, () =>
        sandbox.rollback(to, { memory: options.memory, force: options.force }),
      );
      if (options.json) return printJson({ sandbox: info, kept });
      print(info.name ?? info.id);
      const volumes = info.mounts.filter(({ type }) => type !== 'tmpfs');
      if (volumes.length > 0)
        note(`what is mounted stays as it is now: ${volumes.map(({ path }) => path).join(', ')}`);
      if (kept)
        note(`its state before is ${kept.id}; "cay rollback ${info.name ?? info.id} ${kept.id}" undoes this`);
    },
  );
};
