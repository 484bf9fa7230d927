/**
 * Joins a command in a sandbox to this process: its output to ours byte for byte, our input and
 * signals to it. With a terminal on both sides every key goes to the command, and ours is given
 * back as it was, however this ends.
 */
import { CayError, type CommandEnd, type Process, type PtySize, type Signal } from '@cay/sdk/client';
import { reportFailure } from './failure.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface StreamOptions {
  /** Passes our standard input on. */
  stdin: boolean;
  /** The command has a terminal. */
  pty: boolean;
  /** Called with every chunk of input; false keeps it from the command. */
  intercept?(data: Buffer): boolean;
}

const SIGPIPE_CODE = 128 + 13;
const FORWARDED: readonly Signal[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'];

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
  const undo: (() => void)[] = [];
  try {
    for (const signal of FORWARDED) undo.push(on(process, signal, () => command.kill(signal)));
    if (options.pty) undo.push(followSize(command), ...(process.stdin.isTTY ? [rawTerminal()] : []));
    if (options.stdin) undo.push(passInput(command, options));
    let readerGone = false;
    for (const stream of [process.stdout, process.stderr]) {
      undo.push(
        on(stream, 'error', () => {
          // Whoever read our output has gone: the command hears of it as it would on this machine.
          readerGone = true;
          command.kill('SIGPIPE');
          setTimeout(() => command.kill('SIGKILL'), 1000).unref();
        }),
      );
    }
    for await (const { channel, data } of command) {
      if (readerGone) continue;
      const stream = channel === 'stderr' ? process.stderr : process.stdout;
      if (!stream.write(data)) await drained(stream);
    }
    const { end, exitCode } = await command.wait();
    // Whatever the program left on the line, what comes next begins on one of its own.
    if (options.pty && end.kind !== 'exited') process.stdout.write('\r\n');
    explain(end);
    return readerGone ? SIGPIPE_CODE : exitCode;
  } finally {
    for (const step of undo.reverse()) step();
  }
}

/** An exit code alone does not tell these from a command that chose it. */
function explain(end: CommandEnd): void {
  if (end.kind === 'timed_out')
    reportFailure(new CayError('deadline_exceeded', 'The command ran into its timeout and was killed'));
  if (end.kind === 'oom_killed')
    reportFailure(
      new CayError('resource_exhausted', 'The command ran out of memory', {
        hint: 'give the sandbox more with --memory',
      }),
    );
  if (end.kind === 'lost')
    reportFailure(new CayError('unavailable', `The sandbox went away under the command: ${end.reason}`));
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

function passInput(command: Process, { pty, intercept }: StreamOptions): () => void {
  const { stdin } = process;
  const take = (data: Buffer) => {
    if (intercept?.(data) === false) return;
    stdin.pause();
    // A command that takes no more has ended, which is told by its end.
    inBackground(
      command.write(data).then(() => stdin.resume()),
      ignoreFailure,
    );
  };
  // The end of a terminal's input is a key that the other terminal understands: ^D.
  const end = () =>
    inBackground(Promise.resolve(pty ? command.write('\u0004') : command.closeStdin()), ignoreFailure);
  stdin.on('data', take).on('end', end).on('error', end);
  return () => {
    stdin.off('data', take).off('end', end).off('error', end);
    stdin.pause();
  };
}

function followSize(command: Process): () => void {
  return on(process.stdout, 'resize', () => command.resize(terminalSize()));
}

/** Every key as it is, also ^C and ^Z. Undone at the latest when this process exits. */
function rawTerminal(): () => void {
  const { stdin } = process;
  stdin.setRawMode(true);
  const restore = () => {
    process.off('exit', restore);
    stdin.setRawMode(false);
  };
  process.on('exit', restore);
  return restore;
}
