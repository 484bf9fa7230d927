/**
 * Bounds the number of commands that run in a sandbox at once.
 *
 * Only the guest knows whether a detached command still runs, and asking it takes time. So commands that were
 * started and are not known to have ended are counted here, and the guest is asked only when that count
 * reaches the bound, at most once a second.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { CommandHandle, Guest } from '../../guest/guest.ts';

export interface CommandLimit {
  /** Starts a command if there is room. Rejects `resource_exhausted`. */
  start(id: SandboxId, guest: Guest, begin: () => Promise<CommandHandle>): Promise<CommandHandle>;
  forget(id: SandboxId): void;
}

interface Count {
  starting: number;
  /** Commands whose end is reported here. */
  watched: number;
  /** Commands without a reader that still ran when the guest was last asked, and those detached since. */
  detached: number;
  askedAtMs: number;
  asking: Promise<void> | undefined;
}

const ASK_AGAIN_MS = 1_000;
const ANSWER_MS = 5_000;

export function commandLimit(maximum: number): CommandLimit {
  const counts = new Map<SandboxId, Count>();

  function countOf(id: SandboxId): Count {
    let count = counts.get(id);
    if (!count) {
      count = {
        starting: 0,
        watched: 0,
        detached: 0,
        askedAtMs: Number.NEGATIVE_INFINITY,
        asking: undefined,
      };
      counts.set(id, count);
    }
    return count;
  }

  /** Checks and counts in one step, so that two calls cannot take the same place. */
  function takesRoom(count: Count): boolean {
    if (count.starting + count.watched + count.detached >= maximum) return false;
    count.starting++;
    return true;
  }

  /**
   * A guest that does not answer keeps the count as it is, and one that lies cannot hide commands that are
   * watched.
   */
  async function ask(count: Count, guest: Guest): Promise<void> {
    count.askedAtMs = performance.now();
    const commands = await guest.commands({ signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => undefined);
    if (commands)
      count.detached = Math.max(0, commands.filter(({ end }) => end === undefined).length - count.watched);
  }

  async function takeRoom(id: SandboxId, count: Count, guest: Guest): Promise<void> {
    const askAgain = performance.now() - count.askedAtMs >= ASK_AGAIN_MS;
    if (askAgain) count.asking ??= ask(count, guest).finally(() => (count.asking = undefined));
    await count.asking;
    if (takesRoom(count)) return;
    throw new CayError(
      'resource_exhausted',
      `Sandbox "${id}" runs ${maximum} commands already, as many as it may at once`,
      {
        details: { limit: 'commands', maximum },
        hint: 'wait for some to end, or end them; --max-limit commands=… of "cay up" sets the maximum',
      },
    );
  }

  return {
    async start(id, guest, begin) {
      const count = countOf(id);
      if (!takesRoom(count)) await takeRoom(id, count, guest);
      let handle: CommandHandle;
      try {
        handle = await begin();
      } finally {
        count.starting--;
      }
      // A command that ran before this call is counted already.
      if (handle.existing) return handle;
      count.watched++;
      const over = (detached: boolean) => {
        count.watched--;
        if (detached) count.detached++;
      };
      // A closed handle says nothing about the command.
      handle.ended.then(
        ({ kind }) => over(kind === 'lost'),
        () => over(true),
      );
      return handle;
    },
    forget: (id) => void counts.delete(id),
  };
}
