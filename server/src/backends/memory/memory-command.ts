import { type CommandEnd, type CommandInfo } from '@cay/sdk/protocol';
import type { CallOptions, CommandHandle, GuestExec } from '../../guest/guest.ts';
import { attachHandle } from './attach-handle.ts';
import { bytePipe } from './byte-pipe.ts';
import { findProgram, launch, type Launch } from './launch.ts';
import type { Machine } from './machine.ts';
import { outputLog } from './output-log.ts';
import type { Sink } from './program.ts';
import type { User } from './users.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

const DEFAULT_KEEP_BYTES = 1024 * 1024;

export interface MemoryCommand {
  readonly id: string;
  readonly end: CommandEnd | undefined;
  readonly keptBytes: number;
  /** True while a client is attached. */
  readonly inUse: boolean;
  info(): CommandInfo;
  attach(options: CallOptions & { offset: number; existing: boolean }): CommandHandle;
  /** Ends it for everyone, whatever its program does. */
  kill(end: CommandEnd): void;
  forgetOutput(): void;
}

export interface StartOptions {
  pid: number;
  argv: string[];
  request: GuestExec;
  env: Record<string, string>;
  user: User;
  /**
   * Called when the command has ended, and when a reader has left after that: its output may be forgotten
   * now.
   */
  onIdle(): void;
}

/** Throws, before anything runs, when the program cannot be found. */
export function startCommand(
  machine: Machine,
  { pid, argv, request, env, user, onIdle }: StartOptions,
): MemoryCommand {
  const { id, workdir } = request;
  const { gate } = machine;
  const log = outputLog(request.keepBytes ?? DEFAULT_KEEP_BYTES, request.overflow ?? 'wait');
  const stdin = bytePipe();
  const killing = new AbortController();
  const startedAtMs = Date.now();
  const handles = new Set<() => void>();
  let end: CommandEnd | undefined;
  let written: Promise<void> = Promise.resolve();

  const sink = (channel: 'stdout' | 'stderr'): Sink => ({
    write(data) {
      // In the order of the calls, awaited or not.
      const bytes = Buffer.from(data);
      return (written = written.then(async () => {
        await gate.pass(killing.signal);
        await log.write(channel, bytes);
      }));
    },
  });

  function finish(how: CommandEnd): void {
    if (end) return;
    end = how;
    clearTimeout(timer);
    log.complete();
    stdin.close();
    for (const look of handles) look();
    onIdle();
  }

  function kill(how: CommandEnd): void {
    if (end) return;
    finish(how);
    killing.abort(new Error(`The command was ended: ${how.kind}`));
  }

  const start: Launch = {
    argv,
    env,
    workdir,
    user,
    stdin: gate.through(stdin, killing.signal),
    stdout: sink('stdout'),
    stderr: sink('stderr'),
    signal: killing.signal,
    outOfMemory: () => kill({ kind: 'oom_killed' }),
  };
  findProgram(machine, start);
  if (!request.stdin) stdin.end();
  const timer =
    request.timeoutMs === undefined
      ? undefined
      : setTimeout(() => inBackground(expire(), ignoreFailure), request.timeoutMs);
  async function expire(): Promise<void> {
    await gate.pass(killing.signal);
    kill({ kind: 'timed_out' });
  }

  const running = async () => {
    try {
      const exitCode = await launch(machine, start);
      await written;
      finish({ kind: 'exited', exitCode });
    } catch {
      // Only a program that was killed rejects, and then the end is known already.
      finish({ kind: 'exited', exitCode: 1 });
    }
  };
  inBackground(running(), ignoreFailure);

  return {
    id,
    get end() {
      return end;
    },
    get keptBytes() {
      return log.outputBytes - log.keptFrom;
    },
    get inUse() {
      return log.inUse;
    },
    info: () => ({
      id,
      pid,
      argv,
      pty: false,
      startedAtMs,
      ...(end && { end }),
      outputBytes: log.outputBytes,
      keptFrom: log.keptFrom,
    }),
    kill,
    forgetOutput: () => log.forget(),

    attach: (options) =>
      attachHandle(
        { id, pid, log, stdin, takesInput: request.stdin === true, machine, handles, onIdle, end: () => end },
        options,
      ),
  };
}
