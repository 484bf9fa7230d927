import { posix } from 'node:path';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { BrokenPipe } from './byte-pipe.ts';
import { fileError, wordsOf } from './errno.ts';
import { contentOf } from './file-node.ts';
import { compute, type Machine } from './machine.ts';
import { memoryFiles } from './memory-files.ts';
import type { Program, ProgramContext, Streams } from './program.ts';
import type { User } from './users.ts';

/** The first line of the files that represent programs in `/usr/bin`. */
export const PROGRAM_MARK = '#!program ';
export const DEFAULT_PATH = '/usr/local/bin:/usr/bin:/bin';

const MAX_INTERPRETERS = 4;
const SIGPIPE_EXIT = 141;

export interface Launch extends Streams {
  argv: readonly string[];
  env: Record<string, string>;
  workdir: string;
  user: User;
  signal: AbortSignal;
  /** Ends the whole command for want of memory. */
  outOfMemory(): void;
}

const notFound = (name: string) =>
  new CayError('not_found', `Cannot run ${JSON.stringify(name.slice(0, 256))}: command not found`, {
    details: { what: 'command', exitCode: 127 },
  });
const notExecutable = (name: string) =>
  new CayError('permission_denied', `Cannot run ${JSON.stringify(name.slice(0, 256))}: permission denied`, {
    details: { what: 'command', exitCode: 126 },
  });

/** Finds what an argv means, as `execvp` would: in the `PATH`, with the user's rights, through `#!` lines. */
export function findProgram(
  machine: Machine,
  { argv, env, workdir, user }: Pick<Launch, 'argv' | 'env' | 'workdir' | 'user'>,
): { program: Program; argv: string[] } {
  const { tree, programs } = machine;
  let current = [...argv];
  for (let round = 0; round < MAX_INTERPRETERS; round++) {
    const name = current[0] ?? '';
    const paths = name.includes('/')
      ? [posix.resolve(workdir, name)]
      : (env['PATH'] ?? DEFAULT_PATH).split(':').map((dir) => posix.resolve(workdir, dir, name));
    const content = firstExecutable(paths, name);
    if (content.startsWith(PROGRAM_MARK)) {
      const program = programs.get(content.slice(PROGRAM_MARK.length).split('\n')[0]!);
      if (!program) throw notFound(name);
      return { program, argv: current };
    }
    const [, interpreter, argument] = /^#!\s*(\S+)(?:[ \t]+(\S.*))?/.exec(content) ?? [];
    if (!interpreter) throw notExecutable(name);
    current = [
      interpreter,
      ...(argument ? [argument] : []),
      name.includes('/') ? name : paths[0]!,
      ...current.slice(1),
    ];
  }
  throw notExecutable(argv[0] ?? '');

  function firstExecutable(paths: string[], name: string): string {
    let refused = false;
    for (const path of name === '' ? [] : paths) {
      try {
        const { node } = tree.get(user, path);
        if (node.type !== 'file') throw fileError('EACCES', path);
        tree.demand(user, node, 1, path);
        return Buffer.from(contentOf(node).subarray(0, 512)).toString();
      } catch (error) {
        if (!isCayError(error)) throw error;
        refused ||= error.code === 'permission_denied';
      }
    }
    throw refused ? notExecutable(name) : notFound(name);
  }
}

/** Runs a program to its end, and gives back all that it held. */
export async function launch(machine: Machine, start: Launch): Promise<number> {
  const { limits, usage, ports, tree, gone, gate } = machine;
  const { program, argv } = findProgram(machine, start);
  if (limits.pids !== null && usage.programs >= limits.pids) throw fileError('EAGAIN', argv[0]!);
  const { env, workdir, user, signal, stdin } = start;
  const stopListening: (() => void)[] = [];
  let allocated = 0;

  /** A program that goes on after it was killed stops at its next write. */
  const alive = (sink: Streams['stdout']): Streams['stdout'] => ({
    write(data) {
      signal.throwIfAborted();
      return sink.write(data);
    },
  });

  const context: ProgramContext = {
    argv,
    env,
    workdir,
    user,
    signal,
    stdin,
    stdout: alive(start.stdout),
    stderr: alive(start.stderr),
    files: memoryFiles({ tree, user, gone: AbortSignal.any([gone, signal]), gate }),
    path: (name) => (name === '' ? '' : posix.resolve(workdir, name)),
    run: (child, options = {}) => launch(machine, { ...start, ...options, argv: child }),
    listen(port, handler, { address = '127.0.0.1' } = {}) {
      const stop = ports.listen({ port, address }, handler);
      stopListening.push(stop);
      signal.addEventListener('abort', stop, { once: true });
    },
    async connect(host, port) {
      await gate.pass(signal);
      return machine.dial(host, port);
    },
    allocate(bytes) {
      allocated += bytes;
      usage.memoryBytes += bytes;
      if (limits.memoryBytes === null || usage.memoryBytes <= limits.memoryBytes) return;
      usage.oomKills++;
      start.outOfMemory();
      signal.throwIfAborted();
    },
    compute: (cpuMs) => compute(machine, cpuMs, signal),
  };

  usage.programs++;
  try {
    await gate.pass(signal);
    const exitCode = await program(context);
    await gate.pass(signal);
    return (exitCode ?? 0) & 255;
  } catch (error) {
    if (signal.aborted) throw error;
    if (error instanceof BrokenPipe) return SIGPIPE_EXIT;
    await context.stderr.write(`${argv[0]}: ${wordsOf(error)}\n`);
    return 1;
  } finally {
    usage.programs--;
    usage.memoryBytes -= allocated;
    for (const stop of stopListening) stop();
  }
}
