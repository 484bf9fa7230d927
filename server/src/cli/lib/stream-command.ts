/**
 * Joins a command in a sandbox to this process: its output to ours byte for byte, our input and
 * signals to it. With a terminal on both sides every key goes to the command, and ours is given
 * back as it was, however this ends.
 *
 * A lost connection is made again at the byte of output where it was lost. Input that was sent but may not
 * have arrived cannot be sent again, so a command that reads piped input is not joined again.
 */
import {
  CayError,
  type CommandEnd,
  type Process,
  type PtySize,
  type Sandbox,
  type Signal,
} from '@cay/sdk/client';
import { printDenied } from './denied.ts';
import { detachKeys } from './detach-keys.ts';
import { reportFailure } from './failure.ts';
import { rawTerminal, watchKeys } from './raw-terminal.ts';
import { isLostConnection, reattach } from './reattach.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface StreamOptions {
  /** The sandbox that the command is in. */
  sandbox: Sandbox;
  /** Passes our standard input on. */
  stdin: boolean;
  /** The command has a terminal. */
  pty: boolean;
  /** What a terminal's command gets when this process gets SIGTERM. Default `hangup`. */
  onTerminate?: 'hangup' | 'detach';
  /**
   * Ctrl-P Ctrl-Q leaves the command running. Without effect where input of a terminal is passed on in lines.
   */
  detachable?: boolean;
  /** Takes the output in place of our own. */
  onOutput?(channel: 'stdout' | 'stderr' | 'pty', data: Uint8Array): void;
}

export interface Streamed {
  /** Absent if we detached from the command, which runs on. */
  end?: CommandEnd;
  exitCode: number;
}

interface State {
  command: Process;
  connected: boolean;
  /** Aborted when we detach from the command. */
  leaving: AbortController;
  /** What to exit with then. */
  code?: number;
}

const SIGPIPE_CODE = 128 + 13;
const FORWARDED: readonly Signal[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'];
/** Signals that end this process when the command has a terminal: the keys reach it as input. */
const HANGUPS: Record<string, number> = { SIGTERM: 143, SIGHUP: 129 };
/** How long a command on a terminal has after the terminal was hung up. */
const HANGUP_MS = 1000;
const EOF_EVERY_MS = 500;
const CTRL_C = 3;
const CTRL_D = '\u0004';

/** Input is passed on when it is not a terminal's, or when it was asked for. */
export function passesStdin(asked: boolean | undefined): boolean {
  return asked ?? process.stdin.isTTY !== true;
}

export function terminalSize(): PtySize {
  const { columns, rows } = process.stdout;
  return { cols: columns && columns > 0 ? columns : 80, rows: rows && rows > 0 ? rows : 24 };
}

/** Resolves with the exit code that a shell would show. */
export async function streamCommand(command: Process, options: StreamOptions): Promise<number> {
  const { exitCode } = await streamToEnd(command, options);
  return exitCode;
}

/** The same, with how the command ended. */
export async function streamToEnd(first: Process, options: StreamOptions): Promise<Streamed> {
  const undo: (() => void)[] = [];
  const state: State = { command: first, connected: true, leaving: new AbortController() };
  const kill = (signal: Signal) => state.command.kill(signal);
  const leave = (code: number) => {
    state.code ??= code;
    state.leaving.abort();
    state.command.detach();
  };
  try {
    for (const signal of FORWARDED) {
      const code = options.pty ? HANGUPS[signal] : undefined;
      undo.push(
        on(process, signal, () => {
          if (!state.connected) return leave(code ?? 130);
          if (code === undefined) return kill(signal);
          if (options.onTerminate === 'detach') return leave(code);
          // A shell on a terminal ignores SIGTERM; it ends when the terminal is hung up.
          kill('SIGHUP');
          setTimeout(() => (kill('SIGKILL'), leave(code)), HANGUP_MS).unref();
        }),
      );
    }
    if (options.pty)
      undo.push(
        on(process.stdout, 'resize', () => state.command.resize(terminalSize())),
        ...(process.stdin.isTTY ? [rawTerminal()] : []),
      );
    const input = options.stdin ? passInput(state, options, leave) : undefined;
    if (input) undo.push(input.stop);
    else if (options.detachable) undo.push(watchKeys(() => leave(0)));
    const reader = watchReaders(kill, undo);
    for (;;) {
      try {
        await copyOutput(state.command, options, reader);
        const { end, exitCode } = await state.command.wait();
        // Whatever the program left on the line, what comes next begins on one of its own.
        if (options.pty && end.kind !== 'exited') process.stdout.write('\r\n');
        explain(end);
        if (!options.pty) printDenied(state.command.denied, options.sandbox);
        return { end, exitCode: reader.gone ? SIGPIPE_CODE : exitCode };
      } catch (error) {
        if (state.code !== undefined) return left(state.code);
        if (!isLostConnection(error)) throw error;
        if (input?.mayBeLost) throw lostWithInput(state.command, options.sandbox, error);
        state.connected = false;
        const again = await rejoin(state.command, options, state.leaving.signal).catch((failure: unknown) => {
          if (state.code === undefined) throw lost(state.command, options.sandbox, failure);
        });
        if (!again) return left(state.code!);
        state.command = again;
        state.connected = true;
        if (options.pty) state.command.resize(terminalSize());
        input?.rejoined();
      }
    }
  } finally {
    for (const step of undo.reverse()) step();
  }
}

const left = (exitCode: number): Streamed => ({ exitCode });

/** The reader of our output may go away: the command then gets the signal that it would get here. */
function watchReaders(kill: (signal: Signal) => void, undo: (() => void)[]): { gone: boolean } {
  const reader = { gone: false };
  for (const stream of [process.stdout, process.stderr]) {
    undo.push(
      on(stream, 'error', () => {
        reader.gone = true;
        kill('SIGPIPE');
        setTimeout(() => kill('SIGKILL'), 1000).unref();
      }),
    );
  }
  return reader;
}

async function copyOutput(
  command: Process,
  { onOutput }: StreamOptions,
  reader: { gone: boolean },
): Promise<void> {
  for await (const { channel, data } of command) {
    if (onOutput) {
      onOutput(channel, data);
      continue;
    }
    if (reader.gone) continue;
    const stream = channel === 'stderr' ? process.stderr : process.stdout;
    if (!stream.write(data)) await drained(stream);
  }
}

/** By HTTP first: a WebSocket that is refused does not say why. */
function rejoin(
  { id, offset }: Process,
  { sandbox, pty }: StreamOptions,
  signal: AbortSignal,
): Promise<Process> {
  // In raw mode a line feed alone does not go back to the first column.
  if (pty && process.stdin.isTTY) process.stderr.write('\r\n');
  return reattach(
    async () => {
      await sandbox.command(id);
      return sandbox.attach(id, { offset });
    },
    { what: `the connection to command ${id}`, signal },
  );
}

function attachLine(sandbox: Sandbox, { id, offset }: Process): string {
  return `"cay attach ${sandbox.info.name ?? sandbox.id} ${id} --offset ${offset}" goes on from there`;
}

function lost(command: Process, sandbox: Sandbox, cause: unknown): CayError {
  return new CayError('unavailable', `The connection to command "${command.id}" was lost`, {
    cause,
    hint: attachLine(sandbox, command),
  });
}

function lostWithInput(command: Process, sandbox: Sandbox, cause: unknown): CayError {
  return new CayError(
    'unavailable',
    `The connection to command "${command.id}" was lost while it was given input, and some may be missing`,
    { cause, hint: `${attachLine(sandbox, command)}, without the rest of the input` },
  );
}

/** A command could have chosen the same exit code, so these are explained. */
function explain(end: CommandEnd): void {
  if (end.kind === 'timed_out')
    reportFailure(new CayError('deadline_exceeded', 'The command ran into its timeout and was killed'));
  if (end.kind === 'oom_killed')
    reportFailure(
      new CayError('resource_exhausted', 'The command ran out of memory', {
        hint: 'give the sandbox more with --memory, or "cay update SANDBOX --memory 2g"',
      }),
    );
  if (end.kind === 'lost')
    reportFailure(new CayError('unavailable', `The sandbox ended while the command ran: ${end.reason}`));
}

function on(target: NodeJS.EventEmitter, event: string, listener: (...args: never[]) => void): () => void {
  target.on(event, listener as () => void);
  return () => target.off(event, listener as () => void);
}

function drained(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stream.off('drain', done).off('error', done).off('close', done);
      resolve();
    };
    stream.on('drain', done).on('error', done).on('close', done);
  });
}

interface Input {
  /** Bytes were sent that the command may not have, and that cannot be sent again. */
  readonly mayBeLost: boolean;
  rejoined(): void;
  stop(): void;
}

function passInput(state: State, { pty, detachable }: StreamOptions, leave: (code: number) => void): Input {
  const { stdin } = process;
  const keys = detachable && pty ? detachKeys() : undefined;
  let sent = 0;
  let ended = false;
  let eof: NodeJS.Timeout | undefined;
  const take = (chunk: Buffer) => {
    const { pass: data, detach } = keys?.(chunk) ?? { pass: chunk, detach: false };
    if (detach) return leave(0);
    if (data.length === 0) return;
    // Nothing can be sent while the connection is made again, but Ctrl-C gives up.
    if (!state.connected) return pty && data.includes(CTRL_C) ? leave(130) : undefined;
    sent += data.length;
    stdin.pause();
    // A command that takes no more has ended, and its end says so.
    inBackground(
      state.command.write(data).then(() => stdin.resume()),
      ignoreFailure,
    );
  };
  const sendEnd = () => {
    if (!pty) return state.command.closeStdin();
    // The end of a terminal's input is a key. A shell that has not begun to read loses it, so it is repeated.
    inBackground(state.command.write(CTRL_D), ignoreFailure);
    eof ??= setInterval(() => inBackground(state.command.write(CTRL_D), ignoreFailure), EOF_EVERY_MS).unref();
  };
  const end = () => {
    ended = true;
    sendEnd();
  };
  stdin.on('data', take).on('end', end).on('error', end);
  return {
    get mayBeLost() {
      return !pty && sent > 0;
    },
    rejoined() {
      if (ended) sendEnd();
      else stdin.resume();
    },
    stop() {
      clearInterval(eof);
      stdin.off('data', take).off('end', end).off('error', end);
      stdin.pause();
    },
  };
}
