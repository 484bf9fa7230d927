import { CayError, type CommandEnd, type SandboxId } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import { valueWithin, whenAborted } from '../../lib/timeout.ts';
import { followInGuest } from './ask-guest.ts';
import type { CommandVerbs } from './command.ts';
import { unknownCommand } from './find-commands.ts';
import { FORGOTTEN_END, hasEnded, lostWith } from './lost-end.ts';
import type { CommandParts } from './open-commands.ts';
import { isOwnCommand } from './own-command.ts';
import { goneStatus, sandboxStatus } from './sandbox-status.ts';

export type WaitParts = Pick<
  CommandParts,
  'find' | 'attend' | 'sandboxes' | 'logs' | 'connect' | 'observe' | 'events'
>;

/** Poll interval in case an event was missed. */
const POLL_MS = 2_000;

export function waitVerb(parts: WaitParts): CommandVerbs['wait'] {
  const { find, attend, sandboxes } = parts;
  return async (principal, ref, options) => {
    const found = await find(principal, ref);
    const { id } = found;
    if (options.command === undefined && found.spec.cmd === undefined) {
      throw new CayError('failed_precondition', `Sandbox "${id}" was created without a command of its own`, {
        hint: 'say which command to wait for, or create the sandbox with "cmd"',
      });
    }
    const command = options.command ?? MAIN_COMMAND_ID;
    using _ = attend(id);
    using stop = abortOnDispose(options.signal);
    const ended = await valueWithin(
      Promise.race([endOf(parts, id, command, stop.signal), whenAborted(options.signal)]),
      options.timeoutMs,
    );
    options.signal.throwIfAborted();
    const removed = lostWith({ state: 'destroying' });
    const own = isOwnCommand(found, command);
    const row = await sandboxes.get(id);
    if (!row) {
      const end = ended ?? removed;
      return { ...outcomeOf(end), status: goneStatus(found, own ? end : removed) };
    }
    const status = await sandboxStatus(row, parts);
    // The own command may have ended in the moment in which the time was up.
    const end = ended ?? (own ? status.end : undefined);
    return end ? { ...outcomeOf(end), status } : { outcome: 'timed_out', status };
  };
}

function outcomeOf(end: CommandEnd): { outcome: 'lost' | 'completed'; end: CommandEnd } {
  return { outcome: end.kind === 'lost' ? 'lost' : 'completed', end };
}

/**
 * The end of a command, from its record, from the guest, or from what became of the sandbox. Looks again at
 * every event of the sandbox. Rejects `not_found` for a command that was never seen.
 */
async function endOf(
  { sandboxes, logs, connect, events }: WaitParts,
  id: SandboxId,
  command: string,
  signal: AbortSignal,
): Promise<CommandEnd> {
  let seen = false;
  for (;;) {
    // Subscribes before it looks, so that no change is missed in between.
    using change = nextChange(events, id, signal);
    seen ||= (await logs.get(id, command)) !== undefined || isOwnCommand(await sandboxes.get(id), command);
    const end = await logs.ended(id, command);
    if (end) return end;
    const row = signal.aborted ? undefined : await sandboxes.get(id);
    if (!row) return lostWith({ state: 'destroying' });
    if (hasEnded(row)) return lostIfSeen(lostWith(row));
    if (row.state === 'active') {
      const answer = await followInGuest(connect, id, command, { signal });
      if (answer.kind === 'ended') return answer.end;
      if (answer.kind === 'running') seen = true;
      // A sandbox that changed meanwhile is looked at again with its next event.
      if (answer.kind === 'unknown' && (await sandboxes.get(id))?.state === 'active')
        return lostIfSeen(FORGOTTEN_END);
    }
    await change.heard;
  }

  function lostIfSeen(end: CommandEnd): CommandEnd {
    if (seen) return end;
    throw unknownCommand(command);
  }
}

/** Resolves with the next change of the sandbox, with the next poll, or with the abort. */
function nextChange(
  events: WaitParts['events'],
  id: SandboxId,
  signal: AbortSignal,
): Disposable & { heard: Promise<void> } {
  const { promise: heard, resolve } = Promise.withResolvers<void>();
  const unlisten = events.listen((event) => {
    if (event.sandbox === id && event.type.startsWith('sandbox.')) resolve();
  });
  const timer = setTimeout(resolve, POLL_MS).unref();
  const done = () => resolve();
  signal.addEventListener('abort', done, { once: true });
  return {
    heard,
    [Symbol.dispose]() {
      unlisten();
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
    },
  };
}

function abortOnDispose(signal: AbortSignal): Disposable & { signal: AbortSignal } {
  const over = new AbortController();
  return { signal: AbortSignal.any([signal, over.signal]), [Symbol.dispose]: () => over.abort() };
}
