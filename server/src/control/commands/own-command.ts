/**
 * Finds the command that a sandbox was created with, whenever the sandbox has begun to run, so that it is
 * recorded as those are that callers leave running. Backends start it with the sandbox, so nobody is there
 * who could have announced it.
 *
 * Every start of the sandbox begins another one of the same id, and a sandbox that wakes goes on with the one
 * it had: which of both it is tells the moment at which the guest says that it was started.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, type CommandInfo } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { SandboxRecords, SandboxRow } from '../../records/sandboxes.ts';

export interface OwnCommandsOptions {
  sandboxes: SandboxRecords;
  backend: Backend;
  signal: AbortSignal;
  /** Called with what the guest says of it. */
  found(row: SandboxRow, info: CommandInfo): Promise<void>;
  onError(error: unknown): void;
}

export interface OwnCommands {
  /** Something has happened to the sandbox: it may run from now on, or anew, or not any more. */
  look(sandbox: string): void;
  /** Whether it is not known yet which one the sandbox has now. */
  looking(sandbox: string): boolean;
  /** When that is known, or the sandbox does not run any more. */
  settled(sandbox: string): Promise<void>;
}

const SHORTEST_WAIT_MS = 25;
const LONGEST_WAIT_MS = 5000;
/** Who has not answered by then is asked anew. */
const ANSWER_MS = 30_000;

export function findOwnCommands({
  sandboxes,
  backend,
  signal,
  found,
  onError,
}: OwnCommandsOptions): OwnCommands {
  const looks = new Map<string, { over: AbortController; done: Promise<void> }>();
  const runs = (sandbox: string) => {
    const row = signal.aborted ? undefined : sandboxes.get(sandbox);
    return row?.spec.cmd && row.state === 'active' ? row : undefined;
  };

  async function lookAt(sandbox: string, until: AbortSignal): Promise<void> {
    for (let waitMs = SHORTEST_WAIT_MS; !until.aborted; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      const row = runs(sandbox);
      if (!row) return;
      try {
        const signalled = { signal: AbortSignal.any([until, AbortSignal.timeout(ANSWER_MS)]) };
        const guest = await backend.connect(row.id, signalled);
        const info = (await guest.commands(signalled)).find(({ id }) => id === MAIN_COMMAND_ID);
        if (info && runs(sandbox)) await found(row, info);
        return;
      } catch (error) {
        // One that does not answer is asked again as long as it is said to run.
        if (!until.aborted && !(error instanceof CayError)) onError(error);
      }
      await sleep(waitMs, undefined, { signal: until, ref: false }).catch(() => {});
    }
  }

  return {
    look(sandbox) {
      const before = looks.get(sandbox);
      before?.over.abort();
      if (!runs(sandbox)) return;
      const over = new AbortController();
      const look = {
        over,
        done: (before?.done ?? Promise.resolve())
          .then(() => lookAt(sandbox, AbortSignal.any([signal, over.signal])))
          .catch(onError)
          .finally(() => {
            if (looks.get(sandbox) === look) looks.delete(sandbox);
          }),
      };
      looks.set(sandbox, look);
    },
    looking: (sandbox) => looks.has(sandbox),
    settled: (sandbox) => looks.get(sandbox)?.done ?? Promise.resolve(),
  };
}

/**
 * Whether that is the command the sandbox was created with, and not one of the same id that somebody has
 * started.
 */
export function isOwnCommand(row: Pick<SandboxRow, 'spec'> | undefined, id: string): boolean {
  return id === MAIN_COMMAND_ID && row?.spec.cmd !== undefined;
}

/** Whether what the guest says of it is about the one that is recorded. What has ended does not run again. */
export function isSame(recorded: Pick<CommandInfo, 'startedAtMs' | 'end'>, info: CommandInfo): boolean {
  return recorded.startedAtMs === info.startedAtMs && (recorded.end === undefined || info.end !== undefined);
}
