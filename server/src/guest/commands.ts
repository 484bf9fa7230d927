import { CayError, SIGNALS, type CommandInfo, type PtySize, type Signal } from '@cay/sdk/protocol';
import { call, nothing, promptMessage, type Reach } from './call.ts';
import type { CborMap } from './cbor.ts';
import { AttachedCommand, parseStarted } from './command-handle.ts';
import type { CallOptions, Guest, GuestExec } from './guest.ts';
import { parseCommands } from './parse.ts';

/** The smallest `keepBytes`. With less frequent grants of credit such a command would wait for ever. */
const SMALLEST_KEEP = 4096;
const DEFAULT_KEEP = 1024 * 1024;

export interface AttachOptions extends CallOptions {
  offset?: number;
  /** Whether the command has standard input, if the caller knows. */
  takesInput?: boolean | undefined;
}

export interface GuestCommands extends Omit<Guest, 'files' | 'ports' | 'tool'> {
  exec(request: GuestExec, options?: CallOptions): Promise<AttachedCommand>;
  attach(id: string, options?: AttachOptions): Promise<AttachedCommand>;
}

export function guestCommands(reach: Reach): GuestCommands {
  const simple = (op: string, request: CborMap, options: CallOptions | undefined) =>
    call(reach, { op, request, options }, nothing);

  return {
    async exec(request, options = {}) {
      const connection = await reach(options);
      const {
        id,
        argv,
        shell,
        env,
        workdir: cwd,
        user,
        stdin = false,
        pty,
        timeoutMs,
        keepBytes,
        overflow,
      } = request;
      const stream = connection.open(
        'exec',
        {
          id,
          argv,
          shell,
          env,
          cwd,
          user,
          stdin,
          pty: pty && { ...pty },
          timeoutMs,
          keep: keepBytes,
          overflow,
        },
        { signal: options.signal, grantEvery: (keepBytes ?? DEFAULT_KEEP) / 4 },
      );
      const started = stream.check(parseStarted, await promptMessage(stream, 'exec'));
      stream.markLongLived();
      // A command that existed already may have been started with other options.
      const takesInput = started.existing ? undefined : stdin || pty !== undefined;
      return new AttachedCommand({ id, connection, stream, started, takesInput });
    },

    async attach(id, options = {}) {
      const connection = await reach(options);
      const stream = connection.open(
        'attach',
        { id, offset: options.offset ?? 0 },
        { signal: options.signal, grantEvery: SMALLEST_KEEP / 4 },
      );
      const started = stream.check(parseStarted, await promptMessage(stream, 'attach'));
      stream.markLongLived();
      return new AttachedCommand({ id, connection, stream, started, takesInput: options.takesInput });
    },

    commands: (options?: CallOptions): Promise<CommandInfo[]> =>
      call(reach, { op: 'commands', options }, parseCommands),
    signal(id: string, signal: Signal, options?: CallOptions) {
      const number = SIGNALS[signal];
      if (number === undefined)
        return Promise.reject(new CayError('invalid_argument', `Signal "${signal}" is unknown`));
      return simple('signal', { id, signal: number }, options);
    },
    resize: (id: string, { cols, rows }: PtySize, options?: CallOptions) =>
      simple('resize', { id, cols, rows }, options),
    forget: (id: string, options?: CallOptions) => simple('forget', { id }, options),
  };
}
