/**
 * Runs a program to its end and resolves with its output.
 *
 * Output is kept up to a bound and discarded beyond it. An exit code other than 0, a signal, the timeout and
 * an aborted signal reject with a `RunError` that has the output so far.
 */
import { spawn } from 'node:child_process';

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

export function run(file: string, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const { promise, resolve, reject } = Promise.withResolvers<RunResult>();
  const stdout = boundedText(options.keepBytes ?? 65_536);
  const stderr = boundedText(options.keepBytes ?? 65_536);
  let stopped: 'timeout' | 'aborted' | undefined;

  const fail = (
    reason: RunError['reason'],
    why: string,
    exitCode: number | null = null,
    cause?: NodeJS.ErrnoException,
  ) => {
    const words = stderr.text().trim() || stdout.text().trim();
    const message = `"${file}" ${why}${words === '' ? '' : `: ${words}`}`;
    reject(
      new RunError(
        message,
        { stdout: stdout.text(), stderr: stderr.text(), exitCode, errno: cause?.code, reason },
        cause,
      ),
    );
  };
  if (options.signal?.aborted) {
    fail('aborted', 'was not started: aborted');
    return promise;
  }

  const pipe = options.silent ? 'ignore' : 'pipe';
  const child = spawn(file, args, {
    cwd: options.cwd,
    env: options.env,
    stdio: [options.stdin === undefined ? 'ignore' : 'pipe', pipe, pipe],
  });
  const stop = (reason: 'timeout' | 'aborted') => {
    stopped ??= reason;
    child.kill('SIGKILL');
    // A grandchild may hold the pipes open; the caller must not wait for it.
    child.stdout?.destroy();
    child.stderr?.destroy();
  };
  const onAbort = () => stop('aborted');
  const timer =
    options.timeoutMs === undefined ? undefined : setTimeout(() => stop('timeout'), options.timeoutMs);
  options.signal?.addEventListener('abort', onAbort, { once: true });
  const settle = () => {
    clearTimeout(timer);
    options.signal?.removeEventListener('abort', onAbort);
  };

  child.stdout?.on('data', stdout.add);
  child.stderr?.on('data', stderr.add);
  // Not reading all input is no failure by itself; the exit code decides.
  child.stdin?.on('error', () => {});
  child.stdin?.end(options.stdin);
  child.on('error', (error: NodeJS.ErrnoException) => {
    if (child.pid !== undefined) return;
    settle();
    fail('spawn', `cannot be started (${error.code ?? error.message})`, null, error);
  });
  child.on('close', (code, signal) => {
    settle();
    if (stopped === 'timeout') fail('timeout', `did not end within ${options.timeoutMs} ms`);
    else if (stopped === 'aborted') fail('aborted', 'was aborted');
    else if (code === 0) resolve({ stdout: stdout.text(), stderr: stderr.text() });
    else if (signal) fail('signal', `was ended by ${signal}`);
    else fail('exit', `exited with ${code}`, code);
  });
  return promise;
}

function boundedText(limit: number) {
  const chunks: Buffer[] = [];
  let room = limit;
  return {
    add: (chunk: Buffer) => {
      if (room <= 0) return;
      chunks.push(chunk.subarray(0, room));
      room -= chunk.length;
    },
    text: () => Buffer.concat(chunks).toString(),
  };
}
