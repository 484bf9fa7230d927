import type { Sandbox, UpdateSandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { idleOf, msOf, withLifetimeOptions, type LifetimeOptions } from '../lib/lifetime-options.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { pairs, parseCount, parseCpus, parseSize } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions, LifetimeOptions {
  cpus?: number;
  memory?: number;
  disk?: number;
  pids?: number;
  label?: Record<string, string>;
  rmLabel?: string[];
}

const many = (text: string, before: string[] = []) => [...before, text];

export const updateVerb: Verb = (program) => {
  const command = program
    .command('update')
    .description('change limits, labels or the timeout of a sandbox while it runs')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .option('--cpus <number>', 'cores, such as 2 or 0.5', parseCpus)
    .option('-m, --memory <size>', 'memory, such as 512m or 2g', parseSize)
    .option('--disk <size>', 'disk, such as 5g', parseSize)
    .option('--pids <number>', 'processes and threads', parseCount)
    .option('-l, --label <key=value>', 'a label to add or change; may be repeated', pairs())
    .option('--rm-label <key>', 'a label to remove; may be repeated', many);
  withLifetimeOptions(command);
  withCommonOptions(command)
    .addHelpText(
      'after',
      `
The timeout is counted from now. What is not given stays as it is.

  cay update my-box --memory 4g --cpus 2
  cay update my-box --timeout 2h --on-timeout destroy
  cay update my-box --label stage=review --rm-label draft --hibernate-after none`,
    )
    .action(async (ref: string, options: Options) => {
      const sandbox = await openClient(options).sandbox(ref);
      const changes = changesOf(options, sandbox.info);
      if (Object.keys(changes).length === 0)
        throw usageError('Nothing to change was given', '"cay update --help" lists what can be changed');
      const info = await sandbox.update(changes);
      if (options.json) printJson(info);
      else print(info.name ?? info.id);
    });
};

function changesOf(options: Options, info: Sandbox['info']): UpdateSandbox {
  const limits = {
    ...(options.cpus !== undefined && { cpus: options.cpus }),
    ...(options.memory !== undefined && { memoryBytes: options.memory }),
    ...(options.disk !== undefined && { diskBytes: options.disk }),
    ...(options.pids !== undefined && { pids: options.pids }),
  };
  const idle = idleOf(options);
  const removed = new Set(options.rmLabel);
  const labels = Object.fromEntries(
    Object.entries({ ...info.labels, ...options.label }).filter(([key]) => !removed.has(key)),
  );
  return {
    ...(Object.keys(limits).length > 0 && { limits }),
    ...((options.label ?? options.rmLabel) && { labels }),
    ...(options.timeout !== undefined && { timeoutMs: msOf(options.timeout) }),
    ...(options.onTimeout !== undefined && { onTimeout: options.onTimeout }),
    // The API replaces the whole policy.
    ...(Object.keys(idle).length > 0 && { idle: { ...info.idle, ...idle } }),
    ...(options.onBoot !== undefined && { onBoot: options.onBoot }),
  };
}
