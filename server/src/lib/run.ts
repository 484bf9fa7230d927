/**
 * Runs a program to its end and resolves with its output.
 *
 * Output is kept up to a bound and discarded beyond it. An exit code other than 0, a signal, the timeout and
 * an aborted signal reject with a `RunError` that has the output so far.
 */
import { errnoText, systemReason } from '@cay/sdk/system-error';
import { launchDirectly } from './launch-directly.ts';
import type { LaunchEnd } from './launcher.ts';
import { sharedLauncher } from './shared-launcher.ts';

export interface RunOptions {
  cwd?: string;
  /** The whole environment; absent: the server's. */
  env?: NodeJS.ProcessEnv;
  /** SIGKILL after that time. Absent: no timeout. */
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Bytes to keep of each stream. Default 65,536. */
  keepBytes?: number;
  stdin?: string | Uint8Array;
  /**
   * Gives the program no pipes. For programs that leave a process behind, which would hold the pipes open and
   * make this call wait.
   */
  silent?: boolean;
}

export interface RunResult {
  stdout: string;
  stderr: string;
}

export class RunError extends Error {
  override readonly name = 'RunError';
  readonly stdout: string;
  readonly stderr: string;
  /** Null when it could not be started or was killed by a signal. */
  readonly exitCode: number | null;
  /** `ENOENT` and the like, when it could not be started. */
  readonly errno: string | undefined;
  readonly reason: 'spawn' | 'exit' | 'signal' | 'timeout' | 'aborted';

  constructor(
    message: string,
    fields: Pick<RunError, 'stdout' | 'stderr' | 'exitCode' | 'errno' | 'reason'>,
    cause?: unknown,
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.stdout = fields.stdout;
    this.stderr = fields.stderr;
    this.exitCode = fields.exitCode;
    this.errno = fields.errno;
    this.reason = fields.reason;
  }
}

export async function run(
  file: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const { timeoutMs, signal, keepBytes = 65_536, env = process.env, cwd, stdin, silent } = options;
  if (signal?.aborted) throw failure(file, 'aborted', 'was not started: aborted');
  const request = { argv: [file, ...args], cwd, env, keepBytes, stdin, silent };
  const { ended, kill } = sharedLauncher()?.launch(request) ?? launchDirectly(request);

  let stopped: 'timeout' | 'aborted' | undefined;
  const stop = (reason: 'timeout' | 'aborted') => {
    stopped ??= reason;
    kill();
  };
  const onAbort = () => stop('aborted');
  const timer = timeoutMs === undefined ? undefined : setTimeout(() => stop('timeout'), timeoutMs);
  signal?.addEventListener('abort', onAbort, { once: true });
  let end: LaunchEnd;
  try {
    end = await ended;
  } catch (error) {
    throw failure(file, 'signal', `was not seen to end (${systemReason(error)})`, undefined, error);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  }
  if (end.kind === 'notStarted')
    throw failure(file, 'spawn', `cannot be started: ${errnoText(end.errno)}`, end);
  if (stopped === 'timeout') throw failure(file, 'timeout', `did not end within ${timeoutMs} ms`, end);
  if (stopped === 'aborted') throw failure(file, 'aborted', 'was aborted', end);
  if (end.kind === 'signalled') throw failure(file, 'signal', `was ended by ${end.signal}`, end);
  if (end.code !== 0) throw failure(file, 'exit', `exited with ${end.code}`, end);
  return { stdout: end.stdout.toString(), stderr: end.stderr.toString() };
}

function failure(
  file: string,
  reason: RunError['reason'],
  why: string,
  end?: LaunchEnd,
  cause?: unknown,
): RunError {
  const ran = end === undefined || end.kind === 'notStarted' ? undefined : end;
  const stdout = ran?.stdout.toString() ?? '';
  const stderr = ran?.stderr.toString() ?? '';
  const words = stderr.trim() || stdout.trim();
  return new RunError(
    `"${file}" ${why}${words === '' ? '' : `: ${words}`}`,
    {
      stdout,
      stderr,
      exitCode: reason === 'exit' && ran?.kind === 'exited' ? ran.code : null,
      errno: end?.kind === 'notStarted' ? end.errno : undefined,
      reason,
    },
    cause,
  );
}
