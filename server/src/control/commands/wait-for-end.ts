import { CayError, isCayError, type CommandEnd, type SandboxId, type Waited } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { CommandLogs } from './command-logs.ts';
import { hasEnded, lostWith } from './lost-with.ts';
import { isOwnCommand } from './own-command.ts';
import type { Control } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRecords } from '../../records/sandboxes.ts';
import { valueWithin, whenAborted } from '../../lib/timeout.ts';
import { goneStatus, sandboxStatus } from './sandbox-status.ts';

export interface WaitOptions {
  /** The one that the sandbox was created with, if absent. */
  command?: string | undefined;
  timeoutMs: number;
  /** Ends the waiting because nobody waits any more. */
  signal: AbortSignal;
}

export interface WaitParts {
  control: Control;
  sandboxes: Pick<SandboxRecords, 'get'>;
  logs: CommandLogs;
}

/** How soon a sandbox is looked at again of whose changes nothing was heard. */
const LOOK_AGAIN_MS = 2_000;

/**
 * Waits for the end of a command. Somebody who waits is like somebody who is attached: the sandbox is not
 * idle meanwhile. One that is paused is not woken, and is waited for.
 *
 * Rejects `not_found` and `failed_precondition` for what could never be waited for, at once; what becomes of
 * the sandbox later is an outcome.
 */
export async function waitForEnd(
  parts: WaitParts,
  principal: Principal,
  ref: string,
  options: WaitOptions,
): Promise<Waited> {
  const { control, sandboxes, logs } = parts;
  const { id } = control.get(principal, ref);
  const found = sandboxes.get(id)!;
  if (options.command === undefined && found.spec.cmd === undefined) {
    throw new CayError('failed_precondition', `Sandbox "${id}" was created without a command of its own`, {
      hint: 'say which command to wait for, or create the sandbox with "cmd"',
    });
  }
  const command = options.command ?? MAIN_COMMAND_ID;
  using _ = control.attend(principal, id);
  using over = abortingWith(options.signal);
  const ended = await valueWithin(
    Promise.race([endOf(parts, id, command, over.signal), whenAborted(options.signal)]),
    options.timeoutMs,
  );
  options.signal.throwIfAborted();
  const own = isOwnCommand(found, command);
  const row = sandboxes.get(id);
  const gone = ended ?? lostWith({ state: 'destroying' });
  const status = row
    ? await sandboxStatus(row, logs, control.backend)
    : goneStatus(found, own ? gone : lostWith({ state: 'destroying' }));
  // What came in the very moment in which the time was up is told, too.
  const end = ended ?? (row ? (own ? status.end : undefined) : gone);
  if (!end) return { outcome: 'timed_out', status };
  return { outcome: end.kind === 'lost' ? 'lost' : 'completed', end, status };
}

/** Resolves when it has ended, or nobody can know any more; not before the signal if the waiting is over. */
async function endOf(
  { control, sandboxes, logs }: WaitParts,
  id: SandboxId,
  command: string,
  signal: AbortSignal,
): Promise<CommandEnd> {
  let seen = false;
  for (;;) {
    // Asked for first, so that no change is missed in between.
    using change = nextChange(control, id, signal);
    seen ||= logs.get(id, command) !== undefined || isOwnCommand(sandboxes.get(id), command);
    const end = await logs.ended(id, command);
    if (end) return end;
    const row = signal.aborted ? undefined : sandboxes.get(id);
    if (!row) return lostWith({ state: 'destroying' });
    const rests = hasEnded(row);
    if (rests && !seen) throw new CayError('not_found', `Command "${command}" does not exist`);
    if (rests) return lostWith(row);
    if (row.state === 'active') {
      try {
        const ended = await attached(control, id, command, signal);
        if (ended) return ended;
        seen = true;
      } catch (error) {
        if (!isCayError(error) || (isCayError(error, 'not_found') && !seen && sandboxes.get(id))) throw error;
        if (isCayError(error, 'not_found') && sandboxes.get(id)?.state === 'active')
          return { kind: 'lost', reason: 'The sandbox does not know the command any more' };
      }
    }
    await change.heard;
  }
}

/**
 * The end of a command that is not recorded, from the sandbox itself. `undefined` if the connection ended
 * first.
 */
async function attached(
  control: Control,
  id: SandboxId,
  command: string,
  signal: AbortSignal,
): Promise<CommandEnd | undefined> {
  const guest = await control.backend.connect(id, { signal });
  const info = (await guest.commands({ signal })).find((each) => each.id === command);
  if (!info) throw new CayError('not_found', `Command "${command}" does not exist`);
  if (info.end) return info.end;
  await using handle = await guest.attach(command, { offset: info.outputBytes, signal });
  // What it writes is for others; it is taken so that the end comes.
  for await (const chunk of handle.output) void chunk;
  const end = await handle.ended;
  return end.kind === 'lost' ? undefined : end;
}

/** Hears of the next change of the sandbox, or that it is time to look again, or that the waiting is over. */
function nextChange(
  control: Control,
  id: SandboxId,
  signal: AbortSignal,
): Disposable & { heard: Promise<void> } {
  const { promise: heard, resolve } = Promise.withResolvers<void>();
  const unlisten = control.events.listen((event) => {
    if (event.sandbox === id && event.type.startsWith('sandbox.')) resolve();
  });
  const timer = setTimeout(resolve, LOOK_AGAIN_MS).unref();
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

function abortingWith(signal: AbortSignal): Disposable & { signal: AbortSignal } {
  const over = new AbortController();
  return { signal: AbortSignal.any([signal, over.signal]), [Symbol.dispose]: () => over.abort() };
}
