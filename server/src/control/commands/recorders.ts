import { join } from 'node:path';
import type { CommandEnd } from '@cay/sdk/protocol';
import type { CommandHandle } from '../../guest/guest.ts';
import type { Records } from '../../records/records.ts';
import type { CommandRow } from '../../records/tables/commands.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { ConnectGuest } from './ask-guest.ts';
import { endRecorder } from './record-end.ts';
import { startRecorder, type Recorder } from './recorder.ts';

/** The commands that are being recorded, each by one recorder. */
export interface Recorders {
  get(sandbox: string, id: string): Recorder | undefined;
  /** By command. */
  of(sandbox: string): Map<string, Recorder>;
  /**
   * From the caller's check that there is none to the end of this nothing is awaited: a command has one
   * recorder.
   */
  begin(command: CommandRow, options: BeginOptions): void;
  /**
   * Resolves when the end of the command is recorded. Undefined if it is already, or is not recorded at all.
   */
  finishing(sandbox: string, id: string): Promise<CommandEnd | undefined> | undefined;
  /** Bytes of logs that are being written. */
  bytesOf(project: string): number;
  projects(): Set<string>;
  /** Resolves when all have ended. They end when the signal of the options is aborted. */
  close(): Promise<void>;
}

export interface BeginOptions {
  handle?: CommandHandle | undefined;
  /** False if an earlier server recorded some of the output. */
  fresh: boolean;
  /** The project. */
  owner: string | undefined;
  /** Called when the end is recorded. `finishing` waits for it. */
  afterEnd(row: SandboxRow): Promise<void>;
}

export interface RecordersOptions {
  directory: string;
  records: Pick<Records, 'commands' | 'events' | 'sandboxes'>;
  connect: ConnectGuest;
  signal: AbortSignal;
  now(): number;
  onError(error: unknown): void;
}

export function openRecorders(options: RecordersOptions): Recorders {
  const { directory, connect, signal, now, onError } = options;
  const { commands, events, sandboxes } = options.records;
  const recorders = new Map<string, Recorder>();
  /** Resolve when the end of a command is recorded. */
  const unfinished = new Map<string, Promise<CommandEnd | undefined>>();
  const owners = new WeakMap<Recorder, string>();
  const keyOf = (sandbox: string, id: string) => `${sandbox}/${id}`;
  const recordEnd = endRecorder({ commands, events, now, signal, onError });

  function begin(command: CommandRow, { handle, fresh, owner, afterEnd }: BeginOptions): void {
    const { sandbox, id } = command;
    const recorder = startRecorder({
      command,
      handle,
      fresh,
      directory: join(directory, sandbox),
      connect,
      sandboxes,
      now,
      signal,
      onError,
    });
    recorders.set(keyOf(sandbox, id), recorder);
    if (owner !== undefined) owners.set(recorder, owner);
    const finished = recorder.done
      .then(async (end) => {
        const row = end && (await sandboxes.get(sandbox));
        if (row && (await recordEnd({ command, row, recorder, end, resumed: !fresh }))) await afterEnd(row);
        return end;
      })
      .catch((error: unknown) => {
        onError(error);
        return undefined;
      })
      .finally(() => {
        if (recorders.get(keyOf(sandbox, id)) === recorder) recorders.delete(keyOf(sandbox, id));
        if (unfinished.get(keyOf(sandbox, id)) === finished) unfinished.delete(keyOf(sandbox, id));
      });
    unfinished.set(keyOf(sandbox, id), finished);
  }

  return {
    get: (sandbox, id) => recorders.get(keyOf(sandbox, id)),
    of(sandbox) {
      const all = new Map<string, Recorder>();
      for (const [key, recorder] of recorders)
        if (key.startsWith(`${sandbox}/`)) all.set(key.slice(sandbox.length + 1), recorder);
      return all;
    },
    begin,
    finishing: (sandbox, id) => unfinished.get(keyOf(sandbox, id)),
    bytesOf(project) {
      let bytes = 0;
      for (const recorder of recorders.values())
        if (owners.get(recorder) === project) bytes += recorder.end - recorder.keptFrom;
      return bytes;
    },
    projects: () => new Set([...recorders.values()].flatMap((recorder) => owners.get(recorder) ?? [])),
    async close() {
      await Promise.allSettled([...recorders.values()].map(({ done }) => done));
      await Promise.allSettled(unfinished.values());
    },
  };
}
