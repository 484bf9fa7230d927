import { CayError, type CommandEnd } from '@cay/sdk/protocol';
import type { CommandHandle, OutputChunk, OutputGap } from '../../guest/guest.ts';
import { unlessAborted } from '../../lib/timeout.ts';
import { extentOf, readFrames } from '../../lib/frame-log.ts';
import type { CommandRow } from '../../records/tables/commands.ts';
import { KINDS, type Reader, type Recorder } from './recorder.ts';

export interface ReadLogOptions {
  command: CommandRow;
  /** Reads the record again. */
  find(): Promise<CommandRow | undefined>;
  /** Undefined if the command has ended. */
  recorder: Recorder | undefined;
  directory: string;
  offset: number;
  /** Whether the command was known before the call that reads it. */
  existing: boolean;
  /** Takes the input. Without it the handle is for reading alone. Disposed of with the handle. */
  input?: CommandHandle | undefined;
  signal?: AbortSignal | undefined;
}

const CHANNELS = new Map(
  Object.entries(KINDS).map(([channel, kind]) => [kind as number, channel as keyof typeof KINDS]),
);

/** A handle that reads a recorded command from its log, and follows the recorder until the command ends. */
export function readLog(options: ReadLogOptions): CommandHandle {
  const { command, find, recorder, directory, offset, existing, input, signal } = options;
  const over = new AbortController();
  const ended = Promise.withResolvers<CommandEnd>();
  const reader: Reader = { position: offset };
  recorder?.readers.add(reader);

  const close = () => {
    over.abort();
    recorder?.readers.delete(reader);
    recorder?.taken();
    ended.resolve({ kind: 'lost', reason: 'The handle was closed before the command ended' });
  };
  signal?.addEventListener('abort', close, { once: true });

  let hasEnded = recorder === undefined;
  const onEnded = () => (hasEnded = true);
  recorder?.ended.then(onEnded, onEnded);

  async function* output(): AsyncGenerator<OutputChunk | OutputGap> {
    try {
      for (;;) {
        // Subscribes before it reads, so that no output is missed in between.
        const more = recorder?.changed();
        // In the next turn it is known. Who waited for the promise itself would be kept by it each time.
        await Promise.resolve();
        const finished = hasEnded;
        const end = recorder?.end ?? (await extentOf(directory, command.id)).end;
        for await (const { kind, offset: at, data, missing } of readFrames(
          directory,
          command.id,
          reader.position,
          end,
        )) {
          const channel = CHANNELS.get(kind);
          yield channel === undefined
            ? { channel: 'gap', offset: at, bytes: missing }
            : { channel, offset: at, data };
          reader.position = at + data.length + missing;
          recorder?.taken();
          if (over.signal.aborted) return;
        }
        if (finished && reader.position >= end) break;
        if (!finished) await unlessAborted(more!, over.signal).catch(() => {});
        if (over.signal.aborted) {
          signal?.throwIfAborted();
          return;
        }
      }
      const end = (await recorder?.ended) ?? (await find())?.end;
      ended.resolve(end ?? { kind: 'lost', reason: 'The command is not recorded any more' });
    } finally {
      close();
    }
  }

  let used = false;
  return {
    id: command.id,
    pid: command.pid,
    existing,
    output: {
      [Symbol.asyncIterator]() {
        if (used)
          throw new CayError(
            'failed_precondition',
            `Cannot read the output of command "${command.id}" twice with one handle`,
          );
        used = true;
        return output();
      },
    },
    ended: ended.promise,
    write: (data) => (input ? input.write(data) : Promise.reject(readOnly(command.id))),
    closeStdin: async () => input?.closeStdin(),
    async [Symbol.asyncDispose]() {
      close();
      await input?.[Symbol.asyncDispose]();
    },
  };
}

function readOnly(id: string): CayError {
  return new CayError(
    'failed_precondition',
    `Cannot write to command "${id}": it is read from its log, and takes no input`,
  );
}
