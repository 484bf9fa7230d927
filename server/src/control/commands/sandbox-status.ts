import type { CommandEnd, CommandInfo, SandboxStatus } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import { valueWithin } from '../../lib/timeout.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { CommandLogs } from './command-logs.ts';
import { hasEnded, lostWith } from './lost-end.ts';
import type { CommandParts } from './open-commands.ts';

/** How long a guest is asked for its commands, and a recorder for an end that it is about to record. */
const ASK_MS = 2_000;

/**
 * State of a sandbox and its commands, in every state of the sandbox. Wakes nothing and does not count as
 * use. If the guest does not answer, the records do.
 */
export async function sandboxStatus(
  row: SandboxRow,
  { logs, connect, observe }: Pick<CommandParts, 'logs' | 'connect' | 'observe'>,
): Promise<SandboxStatus> {
  const { id, uid, state: phase, reason, message, spec } = row;
  const hasOwn = spec.cmd !== undefined;
  const over = hasEnded(row);
  const [remembered, seen] =
    phase === 'active'
      ? await Promise.all([commandsInGuest(row, connect), inTime((signal) => observe(id, { signal }))])
      : [];
  const commands = new Map((await logs.list(id)).map((info) => [info.id, info]));
  // The record may be about the own command of an earlier start, so it says nothing about this start.
  if (hasOwn && !remembered && logs.looksForOwn(id)) commands.delete(MAIN_COMMAND_ID);
  for (const info of remembered ?? []) commands.set(info.id, info);

  const ends = new Map<string, CommandEnd | undefined>();
  for (const info of commands.values())
    ends.set(info.id, info.end ?? (over ? await endOf(row, info.id, logs) : undefined));
  // The own command starts with the sandbox. If it is not known, the guest was not asked yet or has forgotten
  // it.
  if (hasOwn && !ends.has(MAIN_COMMAND_ID) && phase !== 'creating') {
    ends.set(
      MAIN_COMMAND_ID,
      over || remembered ? { kind: 'lost', reason: 'The command is not known any more' } : undefined,
    );
  }
  const end = hasOwn ? ends.get(MAIN_COMMAND_ID) : undefined;
  const all = [...ends.values()];
  const succeeded = all.filter((each) => each?.kind === 'exited' && each.exitCode === 0).length;
  const active = all.filter((each) => each === undefined).length;
  return {
    id,
    uid,
    phase,
    complete: end !== undefined || phase === 'failed' || phase === 'destroying',
    active,
    succeeded,
    failed: all.length - succeeded - active,
    reason,
    message,
    ...(end && { end }),
    ...(seen?.pod && { pod: seen.pod }),
  };
}

/** Status of a sandbox that was removed with its records. `end` is that of its own command, if it had one. */
export function goneStatus({ id, uid, spec }: SandboxRow, end: CommandEnd): SandboxStatus {
  return {
    id,
    uid,
    phase: 'destroying',
    complete: true,
    active: 0,
    succeeded: 0,
    failed: 0,
    reason: null,
    message: 'The sandbox was removed',
    ...(spec.cmd && { end }),
  };
}

/** Undefined if the guest does not answer in time. */
function commandsInGuest(
  { id }: SandboxRow,
  connect: CommandParts['connect'],
): Promise<CommandInfo[] | undefined> {
  return inTime(async (signal) => (await connect(id, { signal })).commands({ signal }));
}

/**
 * Undefined if it fails or takes too long: the sandbox has changed meanwhile, or its platform does not
 * answer.
 */
async function inTime<T>(ask: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> {
  const asking = new AbortController();
  try {
    return await valueWithin(ask(asking.signal), ASK_MS);
  } catch {
    return undefined;
  } finally {
    asking.abort();
  }
}

async function endOf(row: SandboxRow, command: string, logs: CommandLogs): Promise<CommandEnd> {
  return (await valueWithin(logs.ended(row.id, command), ASK_MS)) ?? lostWith(row);
}
