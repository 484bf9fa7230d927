import { setTimeout as sleep } from 'node:timers/promises';
import type { CommandEnd } from '@cay/sdk/protocol';
import type { EventRecords } from '../../records/events/events.ts';
import type { CommandRecords, CommandRow } from '../../records/tables/commands.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { commandAudit } from './command-audit.ts';
import type { Recorder } from './recorder.ts';

export interface RecordEndOptions {
  commands: Pick<CommandRecords, 'ended'>;
  events: Pick<EventRecords, 'append' | 'export'>;
  now(): number;
  signal: AbortSignal;
  onError(error: unknown): void;
}

/** The end of a command that a recorder has reached. */
export interface ReachedEnd {
  command: CommandRow;
  row: Pick<SandboxRow, 'id' | 'project'>;
  recorder: Pick<Recorder, 'pid' | 'end' | 'keptFrom'>;
  end: CommandEnd;
  /** An earlier server began the recording, and may have written the event. */
  resumed: boolean;
}

const RETRY_MS = 1000;

/**
 * Records the end of a command: first as an event, then in its row. A server that dies in between reaches the
 * same end again after its restart, and finds the event. Resolves false if it was aborted first.
 */
export function endRecorder({
  commands,
  events,
  now,
  signal,
  onError,
}: RecordEndOptions): (reached: ReachedEnd) => Promise<boolean> {
  const audit = commandAudit(events);

  async function hasEvent({ sandbox, id, startedAtMs }: CommandRow): Promise<boolean> {
    for await (const { data } of events.export({ sandbox, type: 'command.ended', sinceMs: startedAtMs }))
      if (data['command'] === id) return true;
    return false;
  }

  return async ({ command, row, recorder, end, resumed }) => {
    if (!resumed || !(await hasEvent(command))) await audit.ended(command.key, row, command.id, end);
    for (;;) {
      try {
        const { pid, end: outputBytes, keptFrom } = recorder;
        await commands.ended(command.sandbox, command.id, end, { pid, outputBytes, keptFrom }, now());
        return true;
      } catch (error) {
        // A full disk has room again at some time. Without the row the command would look as if it still ran.
        onError(error);
        if (signal.aborted) return false;
        await sleep(RETRY_MS, undefined, { signal, ref: false }).catch(() => {});
      }
    }
  };
}
