import { CayError, type CommandEnd } from '@cay/sdk/protocol';
import type { CallOptions, CommandHandle } from '../../guest/guest.ts';
import { BrokenPipe, type bytePipe } from './byte-pipe.ts';
import type { Machine } from './machine.ts';
import type { outputLog } from './output-log.ts';

/** The parts of a command that its handles share. */
interface Attachable {
  id: string;
  pid: number;
  log: ReturnType<typeof outputLog>;
  stdin: ReturnType<typeof bytePipe>;
  /** Whether it was started with a standard input. */
  takesInput: boolean;
  machine: Machine;
  /** Called when the command has ended. */
  handles: Set<() => void>;
  onIdle(): void;
  end(): CommandEnd | undefined;
}

export function attachHandle(
  { id, pid, log, stdin, takesInput, machine, handles, onIdle, end: endOf }: Attachable,
  { offset, existing, signal }: CallOptions & { offset: number; existing: boolean },
): CommandHandle {
  const { gate, gone } = machine;
  const reader = log.read(offset);
  const ended = Promise.withResolvers<CommandEnd>();
  const settle = (how: CommandEnd) => {
    if (!handles.delete(look)) return;
    reader.close();
    if (endOf()) onIdle();
    signal?.removeEventListener('abort', close);
    ended.resolve(how);
  };
  const look = () => {
    const end = endOf();
    if (end && reader.drained) settle(end);
  };
  const close = () => {
    settle(endOf() ?? { kind: 'lost', reason: 'The handle was closed before the command ended' });
  };
  handles.add(look);
  look();
  if (signal?.aborted) close();
  else signal?.addEventListener('abort', close, { once: true });

  const output: CommandHandle['output'] = {
    [Symbol.asyncIterator]: () => ({
      async next() {
        const value = await reader.next();
        look();
        return value ? { done: false, value } : { done: true, value: undefined };
      },
      async return() {
        close();
        return { done: true, value: undefined };
      },
    }),
  };
  const demandStdin = () => {
    if (!takesInput)
      throw new CayError(
        'failed_precondition',
        `Cannot write to command "${id}": it was started without stdin`,
      );
  };
  return {
    id,
    pid,
    existing,
    output,
    ended: ended.promise,
    async write(data) {
      await gate.pass(gone);
      demandStdin();
      try {
        await stdin.write(data);
      } catch (error) {
        if (error instanceof BrokenPipe)
          throw new CayError(
            'failed_precondition',
            `Cannot write to command "${id}": it does not read any more`,
          );
        throw error;
      }
    },
    async closeStdin() {
      await gate.pass(gone);
      demandStdin();
      stdin.end();
    },
    async [Symbol.asyncDispose]() {
      close();
    },
  };
}
