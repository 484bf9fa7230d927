/**
 * Finds the own command of a sandbox (the command that it was created with) each time the sandbox begins to
 * run, so that it is recorded. Backends start it with the sandbox, so no call announces it to the recorder.
 *
 * Every start of a sandbox begins another command under the same id, while a sandbox that wakes continues the
 * one it had. The start time that the guest reports tells a restarted command from a resumed one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, type CommandInfo, type SandboxId } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { CallOptions } from '../../guest/guest.ts';
import { unlessAborted } from '../../lib/timeout.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SandboxRecords } from '../../records/tables/sandboxes.ts';
import { commandInGuest, type ConnectGuest } from './ask-guest.ts';

export interface OwnCommandsOptions {
  sandboxes: Pick<SandboxRecords, 'get'>;
  connect: ConnectGuest;
  signal: AbortSignal;
  /** Called with the guest's view of the command. */
  found(row: SandboxRow, info: CommandInfo): Promise<void>;
  onError(error: unknown): void;
}

export interface OwnCommands {
  /** Looks again, because the sandbox may have started, restarted or stopped. */
  look(sandbox: string): void;
  /** Whether the guest has not said yet which own command it has now. */
  looking(sandbox: string): boolean;
  /** Resolves when the guest has said so, or the sandbox does not run any more. */
  settled(sandbox: string): Promise<void>;
  /** Resolves when it does not look any more. Abort the signal first. */
  close(): Promise<void>;
}

const SHORTEST_WAIT_MS = 25;
const LONGEST_WAIT_MS = 5000;
/** A guest that has not answered by then is asked again. */
const ANSWER_MS = 30_000;

export function findOwnCommands({
  sandboxes,
  connect,
  signal,
  found,
  onError,
}: OwnCommandsOptions): OwnCommands {
  const looks = new Map<string, { over: AbortController; done: Promise<void> }>();
  const runs = async (sandbox: string) => {
    const row = signal.aborted ? undefined : await sandboxes.get(sandbox);
    return row?.spec.cmd && row.state === 'active' ? row : undefined;
  };

  const ask = async (id: SandboxId, options: CallOptions) =>
    commandInGuest(await connect(id, options), MAIN_COMMAND_ID, options);
  /** Closing does not wait for a guest that does not answer. */
  const silent = () => new CayError('unavailable', 'The guest has not said which command it has');

  async function lookAt(sandbox: string, until: AbortSignal): Promise<void> {
    for (let waitMs = SHORTEST_WAIT_MS; !until.aborted; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      const row = await runs(sandbox);
      if (!row) return;
      try {
        const options = { signal: AbortSignal.any([until, AbortSignal.timeout(ANSWER_MS)]) };
        const info = await unlessAborted(ask(row.id, options), options.signal, silent);
        if (info && (await runs(sandbox))) await found(row, info);
        return;
      } catch (error) {
        // A guest that does not answer is asked again as long as its sandbox is recorded as running.
        if (!until.aborted && !(error instanceof CayError)) onError(error);
      }
      await sleep(waitMs, undefined, { signal: until, ref: false }).catch(() => {});
    }
  }

  return {
    look(sandbox) {
      const before = looks.get(sandbox);
      before?.over.abort();
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
    async close() {
      await Promise.all([...looks.values()].map(({ done }) => done));
    },
  };
}

/** Whether the id means the own command. In a sandbox without one, a caller may use the same id. */
export function isOwnCommand(row: Pick<SandboxRow, 'spec'> | undefined, id: string): boolean {
  return id === MAIN_COMMAND_ID && row?.spec.cmd !== undefined;
}

/** Whether the guest's view is about the recorded command. An ended command does not run again. */
export function isSame(recorded: Pick<CommandInfo, 'startedAtMs' | 'end'>, info: CommandInfo): boolean {
  return recorded.startedAtMs === info.startedAtMs && (recorded.end === undefined || info.end !== undefined);
}
