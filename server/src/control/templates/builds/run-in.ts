/** Runs the commands of a build to their end in its sandbox, and logs their output. */
import { CayError, isCayError, newId } from '@cay/sdk/protocol';
import type { Guest } from '../../../guest/guest.ts';
import { BoundedBytes } from '../../../lib/bounded-bytes.ts';
import type { BuildLog } from './build-log.ts';

/**
 * The environment, user and directory of commands. Steps change them, and sandboxes of the template start
 * with them.
 */
export interface Surroundings {
  env: Record<string, string>;
  workdir: string;
  user: string;
}

export interface RunIn {
  guest: Guest;
  signal: AbortSignal;
  surroundings: Surroundings;
  /** Absent: the output is not logged. */
  log?: BuildLog;
}

const MAX_OUTPUT = 1024 * 1024;

export const loginShell = (line: string): string[] => ['/bin/bash', '-l', '-c', line];

/**
 * Resolves the exit code and the standard output, as far as it is kept. Rejects if the command did not exit
 * by itself.
 */
export async function runIn(
  { guest, signal, surroundings, log }: RunIn,
  argv: string[],
): Promise<{ exitCode: number; stdout: string }> {
  signal.throwIfAborted();
  await using handle = await guest
    .exec({ id: newId('cmd'), argv, ...surroundings }, { signal })
    .catch((error: unknown) => {
      if (!isCayError(error) || error.details['what'] !== 'user') throw error;
      throw new CayError('invalid_argument', `User "${surroundings.user}" does not exist`, {
        details: { unknownUser: surroundings.user },
      });
    });
  const lines = { stdout: log?.lines('info', '[stdout]: '), stderr: log?.lines('info', '[stderr]: ') };
  const stdout = new BoundedBytes(MAX_OUTPUT);
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap') continue;
    const channel = chunk.channel === 'stderr' ? 'stderr' : 'stdout';
    lines[channel]?.write(chunk.data);
    if (channel === 'stdout') stdout.add(chunk.data);
  }
  lines.stdout?.end();
  lines.stderr?.end();
  const end = await handle.ended;
  signal.throwIfAborted();
  if (end.kind === 'exited') return { exitCode: end.exitCode, stdout: stdout.whole().toString() };
  const how =
    end.kind === 'signalled'
      ? `was ended by ${end.signal}`
      : end.kind === 'oom_killed'
        ? 'ran out of memory'
        : 'was lost';
  throw new CayError('failed_precondition', `The command ${how}`);
}

/** The same for a command that has to succeed. */
export async function requireRun(run: RunIn, argv: string[], shown: string): Promise<string> {
  try {
    const { exitCode, stdout } = await runIn(run, argv);
    if (exitCode === 0) return stdout;
    throw new CayError('failed_precondition', `exit code ${exitCode}`, {
      details: { exitCode },
    });
  } catch (error) {
    if (!isCayError(error)) throw error;
    throw new CayError(error.code, `Cannot run "${shown.slice(0, 500)}": ${error.message}`, {
      details: { ...error.details, command: shown.slice(0, 4096) },
      cause: error,
    });
  }
}
