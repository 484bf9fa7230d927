import type { CommandEnd, CommandInfo, SandboxStatus } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { CommandLogs } from './command-logs.ts';
import { hasEnded, lostWith } from './lost-with.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import { valueWithin } from '../../lib/timeout.ts';

/**
 * How long a sandbox that runs is asked for its commands, and a recorder for an end that it is about to
 * record.
 */
const ASK_MS = 2_000;

/**
 * How a sandbox stands, whatever has become of it. It is only looked at: nothing is woken, nothing counts as
 * used, and of a sandbox that does not answer it is told what is recorded.
 */
export async function sandboxStatus(
  row: SandboxRow,
  logs: CommandLogs,
  backend: Backend,
): Promise<SandboxStatus> {
  const { id, uid, state: phase, reason, message, spec } = row;
  const hasOwn = spec.cmd !== undefined;
  const over = hasEnded(row);
  const remembered = phase === 'active' ? await inside(row, backend) : undefined;
  const commands = new Map(logs.list(id).map((info) => [info.id, info]));
  // A start of the sandbox is another one of it, and only the sandbox says how that stands.
  if (hasOwn && !remembered && logs.looksForOwn(id)) commands.delete(MAIN_COMMAND_ID);
  for (const info of remembered ?? []) commands.set(info.id, info);

  const ends = new Map<string, CommandEnd | undefined>();
  for (const info of commands.values())
    ends.set(info.id, info.end ?? (over ? await endOf(row, info.id, logs) : undefined));
  // It was started with the sandbox: that it is not known means that nobody has looked yet, or that it is
  // forgotten.
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
  };
}

/**
 * Of a sandbox that is gone, and its records with it. `end` is that of the command of its own, if it had one.
 */
export function goneStatus({ id, uid, spec }: SandboxRow, end: CommandEnd): SandboxStatus {
  const counts = { active: 0, succeeded: 0, failed: 0 };
  const message = 'The sandbox was removed';
  return {
    id,
    uid,
    phase: 'destroying',
    complete: true,
    ...counts,
    reason: null,
    message,
    ...(spec.cmd && { end }),
  };
}

async function inside({ id }: SandboxRow, backend: Backend): Promise<CommandInfo[] | undefined> {
  const asking = new AbortController();
  const { signal } = asking;
  const asked = backend.connect(id, { signal }).then((guest) => guest.commands({ signal }));
  try {
    return await valueWithin(asked, ASK_MS);
  } catch {
    // It has changed meanwhile, or its platform is away.
    return undefined;
  } finally {
    asking.abort();
  }
}

async function endOf(row: SandboxRow, command: string, logs: CommandLogs): Promise<CommandEnd> {
  return (await valueWithin(logs.ended(row.id, command), ASK_MS)) ?? lostWith(row);
}
