/**
 * Runs the guest binary on the host to pack or unpack a tree. The process sees only the tree, so no name or
 * symlink leads elsewhere, and it maps owners between host ids and ids inside.
 */
import { CayError, isErrorCode } from '@cay/sdk/protocol';
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { feed } from '../../lib/feed.ts';
import { endFirst } from '../end-first.ts';
import type { IdMapping } from '../runtimes/runtime.ts';

export interface Tree {
  /** The tree's directory on the host. */
  path: string;
  ids: IdMapping;
}

export interface TreeProcessOptions {
  /** Path of the guest binary. */
  guestBinary: string;
  signal?: AbortSignal;
}

const KEEP_STDERR = 16 * 1024;

/**
 * The tree, or these paths of it with everything below them, as a POSIX pax archive. Rejects `not_found` for
 * a missing path.
 */
export async function* packTree(
  tree: Tree,
  options: TreeProcessOptions & { paths?: string[] },
): AsyncGenerator<Uint8Array, void, undefined> {
  const child = start(
    'pack',
    tree,
    (options.paths ?? []).flatMap((path) => ['--path', path]),
    options,
  );
  try {
    yield* child.process.stdout as AsyncIterable<Buffer>;
    await child.ended;
  } finally {
    await child.kill();
  }
}

/**
 * Unpacks into the tree. If it rejects, the tree's content is undefined. Rejects `invalid_argument` for a
 * malformed archive.
 */
export async function unpackTree(
  tree: Tree,
  archive: AsyncIterable<Uint8Array>,
  options: TreeProcessOptions & {
    /** The archive is a layer of an image, with at most that many entries. */
    layer?: { mostEntries: number };
  },
): Promise<void> {
  const args = options.layer ? ['--layer', String(options.layer.mostEntries)] : [];
  const child = start('unpack', tree, args, options);
  try {
    child.process.stdout.resume();
    const [fed, ended] = await Promise.allSettled([feed(archive, child.process.stdin), child.ended]);
    // A program that stopped reading has reported why; otherwise the failure of our source is the reason.
    if (fed.status === 'rejected' && !isBrokenPipe(fed.reason)) throw fed.reason;
    if (ended.status === 'rejected') throw ended.reason;
    if (fed.status === 'rejected') throw fed.reason;
  } finally {
    await child.kill();
  }
}

function isBrokenPipe(error: unknown): boolean {
  return ['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET'].includes(
    (error as NodeJS.ErrnoException).code ?? '',
  );
}

interface Started {
  process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Resolves after exit code 0. */
  ended: Promise<void>;
  /** Resolves when the process has exited. */
  kill(): Promise<void>;
}

function start(
  way: 'pack' | 'unpack',
  { path, ids }: Tree,
  args: string[],
  { guestBinary, signal }: TreeProcessOptions,
): Started {
  signal?.throwIfAborted();
  const all = [way, '--root', path, '--ids', `${ids.hostId}:${ids.size}`, ...args];
  const child = spawn(guestBinary, all, { stdio: ['pipe', 'pipe', 'pipe'], cwd: '/', env: {} });
  endFirst(child.pid);
  const { promise: ended, resolve, reject } = Promise.withResolvers<void>();
  // The caller that awaits it sees the rejection; if none does, something else has failed first.
  ended.catch(() => {});
  let words = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    words = (words + text).slice(0, KEEP_STDERR);
  });
  // Its exit tells why it does not read.
  child.stdin.on('error', () => {});
  const onAbort = () => void child.kill('SIGKILL');
  signal?.addEventListener('abort', onAbort, { once: true });
  const closed = new Promise<void>((done) => {
    child.once('error', (error) => {
      if (child.pid !== undefined) return;
      reject(
        new CayError('unavailable', `Cannot ${way} a tree: "${guestBinary}" cannot be started`, {
          cause: error,
        }),
      );
      done();
    });
    child.once('close', (code, name) => {
      signal?.removeEventListener('abort', onAbort);
      if (signal?.aborted) reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
      else if (code === 0) resolve();
      else reject(failure(way, words, name ?? `exit code ${code}`));
      done();
    });
  });
  return {
    process: child,
    ended,
    kill: async () => {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
      child.stdin.destroy();
      child.stdout.destroy();
      await closed;
    },
  };
}

/** The program prints `code: message`. */
function failure(way: string, words: string, how: string): CayError {
  const [, code, message] = /^([a-z_]+): (.+?)\s*$/s.exec(words) ?? [];
  // A link target that is missing is a defect of the archive, not a missing path of the caller.
  if (way === 'unpack' && code === 'not_found' && message) return new CayError('invalid_argument', message);
  if (isErrorCode(code) && message) return new CayError(code, message);
  return new CayError(
    'internal',
    `Cannot ${way} a tree: the program ended with ${how}${words ? `: ${words.trim()}` : ''}`,
  );
}
