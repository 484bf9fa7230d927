/**
 * Finds the command that a sandbox was created with, whenever the sandbox has begun to run, so that it is recorded as those are that callers
 * leave running. Backends start it with the sandbox, so nobody is there who could have announced it.
 *
 * Every start of the sandbox begins another one of the same id, and a sandbox that wakes goes on with the one it had: which of both it is tells
 * the moment at which the guest says that it was started.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, type CommandInfo } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { MAIN_COMMAND_ID } from '../../backends/start-main.ts';
import type { SandboxRecords, SandboxRow } from '../records/sandboxes.ts';

export interface OwnCommandsOptions {
  sandboxes: SandboxRecords;
  backend: Backend;
  signal: AbortSignal;
  /** Called with what the guest says of it. */
  found(row: SandboxRow, info: CommandInfo): Promise<void>;
  onError(error: unknown): void;
}

export interface OwnCommands {
  /** The sandbox may run from now on, or anew. */
  look(sandbox: string): void;
  /** Whether it is not known yet which one the sandbox has now. */
  looking(sandbox: string): boolean;
  /** When that is known. */
  settled(sandbox: string): Promise<void>;
}

const SHORTEST_WAIT_MS = 25;
const LONGEST_WAIT_MS = 5000;

export function findOwnCommands({ sandboxes, backend, signal, found, onError }: OwnCommandsOptions): OwnCommands {
  const looking = new Map<string, Promise<void>>();
  const runs = (sandbox: string) => {
    const row = signal.aborted ? undefined : sandboxes.get(sandbox);
    return row?.spec.cmd && row.state === 'active' ? row : undefined;
  };

  async function lookAt(sandbox: string): Promise<void> {
    for (let waitMs = SHORTEST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      const row = runs(sandbox);
      if (!row) return;
      try {
        const info = (await (await backend.connect(row.id, { signal })).commands({ signal })).find(({ id }) => id === MAIN_COMMAND_ID);
        if (info && runs(sandbox)) await found(row, info);
        return;
      } catch (error) {
        // One that does not answer is asked again as long as it is said to run.
        if (!(error instanceof CayError)) onError(error);
      }
      await sleep(waitMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  return {
    look(sandbox) {
      if (!runs(sandbox)) return;
      const before = looking.get(sandbox) ?? Promise.resolve();
      const next = before
        .then(() => lookAt(sandbox))
        .catch(onError)
        .finally(() => {
          if (looking.get(sandbox) === next) looking.delete(sandbox);
        });
      looking.set(sandbox, next);
    },
    looking: (sandbox) => looking.has(sandbox),
    settled: (sandbox) => looking.get(sandbox) ?? Promise.resolve(),
  };
}

/** Whether that is the command the sandbox was created with, and not one of the same id that somebody has started. */
export function isOwnCommand(row: Pick<SandboxRow, 'spec'> | undefined, id: string): boolean {
  return id === MAIN_COMMAND_ID && row?.spec.cmd !== undefined;
}

/** Whether what the guest says of it is about the one that is recorded. What has ended does not run again. */
export function isSame(recorded: Pick<CommandInfo, 'startedAtMs' | 'end'>, info: CommandInfo): boolean {
  return recorded.startedAtMs === info.startedAtMs && (recorded.end === undefined || info.end !== undefined);
}
