import type { MoveLoss } from '@cay/sdk/protocol';
import { MOVE_LOSSES } from '@cay/sdk/protocol';
import { Option } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

export const moveVerb: Verb = (program) => {
  const command = program
    .command('move')
    .description('move a sandbox to another platform of the server, with its files, settings and snapshots')
    .argument('<sandbox>', 'its whole id or its name')
    .requiredOption('--platform <name>', 'where to')
    .addOption(
      new Option('--drop <what...>', 'what may be left behind')
        .choices([...MOVE_LOSSES])
        .default([], 'nothing'),
    )
    .option('--dry-run', 'only say what would go along and what would not');
  withCommonOptions(command).action(
    async (
      ref: string,
      options: CommonOptions & { platform: string; drop: MoveLoss[]; dryRun?: boolean },
    ) => {
      const sandbox = await openClient(options).sandbox(ref, { prefix: false });
      const { platform, drop, dryRun = false } = options;
      const result = await sandbox.move(platform, { drop, dryRun });
      if (options.json) return printJson(result);
      const { plan, moved, sandbox: info } = result;
      print(moved ? `${info.name ?? info.id} ${plan.to}` : `would move from ${plan.from} to ${plan.to}`);
      note(`${plan.snapshots} snapshots ${moved ? 'went' : 'go'} along`);
      for (const { what, why } of plan.losses) note(`${moved ? 'lost' : 'would lose'} ${what}: ${why}`);
      if (!moved && plan.losses.length > 0)
        note(`allow it with --drop ${plan.losses.map(({ what }) => what).join(' ')}`);
    },
  );
};
