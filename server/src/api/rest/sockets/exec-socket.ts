/**
 * A command over a WebSocket. The first text message is `{exec}` or `{attach}`. After it, binary messages are
 * standard input, and text messages resize the terminal, send a signal or close the input. Binary messages of
 * the server begin with a byte for the channel; its text messages are events without data. A client that
 * disconnects detaches, and the command keeps running.
 */
import {
  CayError,
  SOCKET_CHANNELS,
  SocketMessageSchema,
  SocketOpenSchema,
  shellExitCode,
  type EgressDenial,
  type ExecEvent,
} from '@cay/sdk/protocol';
import type { WebSocket } from 'ws';
import type { z } from 'zod';
import type { AttachedCommand, StartedCommand } from '../../../control/commands/command.ts';
import type { CommandHandle } from '../../../guest/guest.ts';
import { invalid } from '../../http/error-answer.ts';
import { closeWith, receive, send, signalOf } from './socket-flow.ts';
import type { SocketContext } from './sockets.ts';

const FIRST_MESSAGE_MS = 10_000;

export async function execSocket(socket: WebSocket, context: SocketContext): Promise<void> {
  const signal = signalOf(socket);
  const since = Date.now();
  const opened = Promise.withResolvers<AttachedCommand>();
  // A rejection without a reader must not count as unhandled.
  opened.promise.catch(() => {});
  let first = true;
  let opening: Promise<AttachedCommand> | undefined;
  const timer = setTimeout(
    () => opened.reject(new CayError('deadline_exceeded', 'The first message did not come in time')),
    FIRST_MESSAGE_MS,
  );
  receive(
    socket,
    async (data, binary) => {
      if (!first) return take(await opened.promise, data, binary);
      first = false;
      clearTimeout(timer);
      if (binary) throw new CayError('invalid_argument', 'The first message must be text');
      opening = open(context, parse(SocketOpenSchema, data), signal);
      opened.resolve(await opening);
    },
    (error) => {
      opened.reject(error);
      closeWith(socket, error);
    },
  );
  signal.addEventListener(
    'abort',
    () => opened.reject(new CayError('cancelled', 'The caller disconnected')),
    {
      once: true,
    },
  );
  try {
    const { handle, sandbox }: AttachedCommand & Partial<StartedCommand> = await opened.promise;
    await using _ = handle;
    await emit(socket, handle, () =>
      sandbox === undefined ? {} : context.control.network.deniedSince(sandbox, since),
    );
  } catch (error) {
    closeWith(socket, error);
  } finally {
    clearTimeout(timer);
    // After the client disconnected the start may still be under way, and holds its input.
    await opening?.catch(() => {});
  }
}

type Open = z.infer<typeof SocketOpenSchema>;

function open(
  { control: { commands }, principal, ref }: SocketContext,
  message: Open,
  signal: AbortSignal,
): Promise<AttachedCommand> {
  if ('exec' in message) return commands.start(principal, ref, message.exec, { signal });
  const { id, offset } = message.attach;
  return commands.attach(principal, ref, id, { offset, signal });
}

async function take({ guest, handle }: AttachedCommand, data: Buffer, binary: boolean): Promise<void> {
  try {
    if (binary) return await handle.write(data);
    const message = parse(SocketMessageSchema, data);
    if ('resize' in message) await guest?.resize(handle.id, message.resize);
    else if ('signal' in message) await guest?.signal(handle.id, message.signal);
    else await handle.closeStdin();
  } catch (error) {
    // A command that has just ended takes no input. The client learns of its end.
    if (
      error instanceof CayError &&
      ['failed_precondition', 'not_found', 'cancelled', 'unavailable'].includes(error.code)
    )
      return;
    throw error;
  }
}

async function emit(
  socket: WebSocket,
  handle: CommandHandle,
  denied: () => { denied?: EgressDenial[] },
): Promise<void> {
  const event = (value: ExecEvent) => send(socket, JSON.stringify(value));
  await event({ type: 'started', id: handle.id, pid: handle.pid, existing: handle.existing });
  for await (const chunk of handle.output) {
    if (socket.readyState !== socket.OPEN) return;
    if (chunk.channel === 'gap') await event({ type: 'gap', offset: chunk.offset, bytes: chunk.bytes });
    else {
      const message = Buffer.allocUnsafe(chunk.data.length + 1);
      message[0] = SOCKET_CHANNELS[chunk.channel];
      message.set(chunk.data, 1);
      await send(socket, message);
    }
  }
  if (socket.readyState !== socket.OPEN) return;
  const end = await handle.ended;
  await event({ type: 'end', end, exitCode: shellExitCode(end), ...denied() });
  socket.close(1000);
}

function parse<T extends z.ZodType>(schema: T, data: Buffer): z.infer<T> {
  let value: unknown;
  try {
    value = JSON.parse(data.toString());
  } catch {
    throw new CayError('invalid_argument', 'The message is not JSON');
  }
  const result = schema.safeParse(value);
  if (!result.success) throw invalid(result.error, 'message', schema);
  return result.data;
}
