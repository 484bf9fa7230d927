/** The flags of a command, shared by `run` and `exec`, and what becomes of them. */
import { isCayError, type ExecRequest } from '@cay/sdk/client';
import type { Command } from 'commander';
import { withHint } from './failure.ts';
import { passesStdin, terminalSize } from './stream-command.ts';
import { parseDuration } from './units.ts';

export interface ExecOptions {
  interactive?: boolean;
  tty?: boolean;
  timeout?: number;
}

export function withExecOptions(command: Command): Command {
  return command
    .option('-i, --interactive', 'pass standard input on; done anyway unless it is a terminal')
    .option('-t, --tty', 'run the command on a terminal')
    .option('--timeout <time>', 'kill the command after this time, such as 30s', parseDuration);
}

/** Once a sandbox was named, a `--` before the command is left in it. */
export function withoutDashes(argv: string[]): string[] {
  return argv[0] === '--' ? argv.slice(1) : argv;
}

export function execRequest(
  argv: string[],
  options: ExecOptions,
): ExecRequest & { argv: string[]; stdin: boolean } {
  const { TERM } = process.env;
  return {
    argv,
    stdin: options.tty === true || passesStdin(options.interactive),
    ...(options.tty && { pty: terminalSize(), ...(TERM && { env: { TERM } }) }),
    ...(options.timeout !== undefined && { timeoutMs: options.timeout }),
  };
}

/** A whole line given as one word, such as `'ls -la'`, needs a shell to take it apart. */
export async function withShellHint<T>(argv: readonly string[], start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    const [line = ''] = argv;
    if (
      argv.length !== 1 ||
      !isCayError(error) ||
      error.details['exitCode'] !== 127 ||
      !/[\s|&;<>]/.test(line)
    )
      throw error;
    throw withHint(error, `a shell line needs a shell: sh -c '${line.replaceAll("'", String.raw`'\''`)}'`);
  }
}
