import { spawn } from 'node:child_process';
import { CayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { RunError, run } from '../../lib/run.ts';
import { endFirst } from '../end-first.ts';

export interface CommandOptions {
  cwd?: string;
  /** Generous: flushing a busy disk is slow, and an interrupted operation is worse than a late one. */
  timeoutMs?: number;
}

/** English messages, and the system's program directories whatever PATH the server has. */
const ENV = {
  LC_ALL: 'C',
  PATH: [process.env['PATH'], '/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/bin', '/bin']
    .filter(Boolean)
    .join(':'),
};

/** Must hold the list of all subvolumes of a large pool. */
const KEEP_BYTES = 16 * 1024 * 1024;

/** Runs a system program and resolves with its output. Rejects if it fails. */
export async function command(
  argv: readonly [string, ...string[]],
  options: CommandOptions = {},
): Promise<string> {
  const { stdout, stderr, exitCode } = await attempt(argv, options);
  if (exitCode === 0) return stdout;
  const full = /No space left on device|Disk quota exceeded/.test(stderr);
  const busy = /busy/i.test(stderr);
  const code = full ? 'resource_exhausted' : busy ? 'failed_precondition' : 'internal';
  const reason = stderr.trim().slice(0, 500) || `exit code ${exitCode}`;
  throw new CayError(code, `Command "${argv.slice(0, 3).join(' ')}" failed: ${reason}`, {
    details: { exitCode },
  });
}

/** Like `command`, but resolves also if it fails. */
export async function attempt(
  argv: readonly [string, ...string[]],
  { cwd, timeoutMs = 120_000 }: CommandOptions = {},
): Promise<{ stdout: string; stderr: string; exitCode: number }> {
  const [file, ...args] = argv;
  try {
    const output = await run(file, args, {
      timeoutMs,
      env: ENV,
      keepBytes: KEEP_BYTES,
      ...(cwd !== undefined && { cwd }),
    });
    return { ...output, exitCode: 0 };
  } catch (error) {
    if (error instanceof RunError && error.reason === 'exit' && error.exitCode !== null) {
      return { stdout: error.stdout, stderr: error.stderr, exitCode: error.exitCode };
    }
    if (error instanceof RunError && error.errno === 'ENOENT') {
      throw new CayError('failed_precondition', `Cannot run "${file}": the program is not installed`, {
        cause: error,
      });
    }
    throw new CayError('internal', `Cannot run "${file}"`, { cause: error });
  }
}

/**
 * Streams the output of a system program. Rejects at the end if the program fails. Leaves no process behind.
 */
export async function* output(
  argv: readonly [string, ...string[]],
  { signal }: { signal?: AbortSignal | undefined } = {},
): AsyncGenerator<Buffer> {
  const [file, ...args] = argv;
  const child = spawn(file, args, { env: ENV, stdio: ['ignore', 'pipe', 'pipe'] });
  endFirst(child.pid);
  let words = '';
  child.stderr.on('data', (chunk: Buffer) => {
    if (words.length < 500) words += chunk.toString();
  });
  const ended = new Promise<string | undefined>((resolve) => {
    child.on('error', (error) => resolve(systemReason(error)));
    child.on('close', (code) => resolve(code === 0 ? undefined : words.trim() || `exit code ${code}`));
  });
  const stop = (): void => void child.kill('SIGKILL');
  signal?.addEventListener('abort', stop, { once: true });
  try {
    yield* child.stdout as AsyncIterable<Buffer>;
    const reason = await ended;
    signal?.throwIfAborted();
    if (reason !== undefined)
      throw new CayError(
        'internal',
        `Command "${argv.slice(0, 2).join(' ')}" failed: ${reason.slice(0, 500)}`,
      );
  } finally {
    signal?.removeEventListener('abort', stop);
    stop();
    await ended;
  }
}
