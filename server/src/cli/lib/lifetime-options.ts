/**
 * The flags that say how long a sandbox lives and what becomes of an idle one, shared by `create` and
 * `update`.
 */
import type { IdlePolicy, OnTimeout } from '@cay/sdk/client';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { parseDuration } from './units.ts';

/** The parser of flags takes null for a missing value. */
type TimeOrNone = number | 'none';

export interface LifetimeOptions {
  timeout?: TimeOrNone;
  onTimeout?: OnTimeout;
  freezeAfter?: TimeOrNone;
  suspendAfter?: TimeOrNone;
  hibernateAfter?: TimeOrNone;
  archiveAfter?: TimeOrNone;
  destroyAfter?: TimeOrNone;
  onBoot?: 'start' | 'stay';
}

export function withLifetimeOptions(command: Command): Command {
  return command
    .option('--timeout <time>', 'how long it may live, such as 2h; "none" for ever', parseTimeOrNone)
    .addOption(
      new Option('--on-timeout <what>', 'what happens then (default: pause)').choices([
        'pause',
        'archive',
        'stop',
        'destroy',
      ]),
    )
    .option('--freeze-after <time>', 'freeze it when it was idle for so long; "none" never', parseTimeOrNone)
    .option('--suspend-after <time>', 'keep nothing but its files then', parseTimeOrNone)
    .option('--hibernate-after <time>', 'put its memory on disk then', parseTimeOrNone)
    .option('--archive-after <time>', 'move it to the archive store then', parseTimeOrNone)
    .option('--destroy-after <time>', 'remove it then', parseTimeOrNone)
    .addOption(
      new Option('--on-boot <what>', 'what happens when the machine was restarted').choices([
        'start',
        'stay',
      ]),
    );
}

/** The rungs of the idle policy that were given. */
export function idleOf(options: LifetimeOptions): Partial<IdlePolicy> {
  return {
    ...(options.freezeAfter !== undefined && { freezeAfterMs: msOf(options.freezeAfter) }),
    ...(options.suspendAfter !== undefined && { suspendAfterMs: msOf(options.suspendAfter) }),
    ...(options.hibernateAfter !== undefined && { hibernateAfterMs: msOf(options.hibernateAfter) }),
    ...(options.archiveAfter !== undefined && { archiveAfterMs: msOf(options.archiveAfter) }),
    ...(options.destroyAfter !== undefined && { destroyAfterMs: msOf(options.destroyAfter) }),
  };
}

function parseTimeOrNone(text: string): TimeOrNone {
  if (text === 'none') return text;
  const ms = parseDuration(text);
  if (ms < 1000) throw new InvalidArgumentError('This must be 1s or more.');
  return ms;
}

/** Null is never, as the API has it. */
export function msOf(time: TimeOrNone): number | null {
  return time === 'none' ? null : time;
}
