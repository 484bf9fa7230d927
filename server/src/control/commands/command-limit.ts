/**
 * Bounds how many commands of a sandbox run at once.
 *
 * Only the guest knows whether a command that nobody waits for still runs, and asking it takes a while. So
 * what was started and is not known to have ended is counted here, and the guest is asked only when that
 * count reaches the bound, at most once a second.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { CommandHandle, Guest } from '../../guest/guest.ts';

export interface CommandLimit {
  /** Starts a command if there is room for it. Rejects `resource_exhausted`. */
  start(id: SandboxId, guest: Guest, begin: () => Promise<CommandHandle>): Promise<CommandHandle>;
  forget(id: SandboxId): void;
}

interface Count {
  starting: number;
  /** Their end will be told here. */
  watched: number;
  /** Those that nobody waits for any more, as far as is known. */
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

  /** Nothing waits between looking and counting, so that no two take the same room. */
  function takesRoom(count: Count): boolean {
    if (count.starting + count.watched + count.detached >= maximum) return false;
    count.starting++;
    return true;
  }

  /** A guest that does not answer has no room, and one that lies cannot hide what is watched. */
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
      // One that ran before this call is counted already.
      if (handle.existing) return handle;
      count.watched++;
      const over = (detached: boolean) => {
        count.watched--;
        if (detached) count.detached++;
      };
      // A reader that was let go of says nothing of the command.
      handle.ended.then(
        ({ kind }) => over(kind === 'lost'),
        () => over(true),
      );
      return handle;
    },
    forget: (id) => void counts.delete(id),
  };
}
