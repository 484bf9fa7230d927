/**
 * Claude Code of the Claude Agent SDK in a sandbox.
 *
 *     const sandbox = await Sandbox.create({ template: 'claude', network });
 *     query({ prompt, options: { cwd: '/home/user', spawnClaudeCodeProcess: spawnClaudeCode(sandbox) } });
 */
import type { SpawnedProcess, SpawnOptions } from '@anthropic-ai/claude-agent-sdk';
import type { Process, Sandbox, Signal } from '@cay/sdk';
import { EventEmitter } from 'node:events';
import { PassThrough, Writable } from 'node:stream';

export interface SpawnClaudeCodeOptions {
  /** The program inside. Default: `claude`; what the SDK names is a path of this machine. */
  command?: string;
  /** Names of variables that go along. The environment of this machine does not. Default: none. */
  env?: readonly string[];
  /** Variables of the process, such as `ANTHROPIC_API_KEY` with a placeholder. */
  set?: Record<string, string>;
}

export function spawnClaudeCode(
  sandbox: Sandbox,
  { command = 'claude', env = [], set = {} }: SpawnClaudeCodeOptions = {},
): (options: SpawnOptions) => SpawnedProcess {
  return ({ args, cwd, env: given, signal }) => {
    const passed = Object.fromEntries(
      env.flatMap((name) => (given[name] === undefined ? [] : [[name, given[name]]])),
    ) as Record<string, string>;
    // The first arguments may be a program of this machine that runs the command.
    const own = args.slice(args.findIndex((argument) => argument.startsWith('-')));
    const started = sandbox.spawn([command, ...own], {
      stdin: true,
      env: { ...passed, ...set },
      ...(cwd !== undefined && { workdir: cwd }),
    });
    return new RemoteProcess(started, signal);
  };
}

class RemoteProcess extends EventEmitter implements SpawnedProcess {
  readonly stdin: Writable;
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  killed = false;
  exitCode: number | null = null;
  readonly #started: Promise<Process>;

  constructor(started: Promise<Process>, signal: AbortSignal) {
    super();
    this.#started = started;
    this.stdin = new Writable({
      write: (chunk: Buffer, _encoding, done) => void this.#with((process) => process.write(chunk), done),
      final: (done) => void this.#with(async (process) => process.closeStdin(), done),
    });
    // A write to a process that has ended is told by its end.
    this.stdin.on('error', () => {});
    const abort = () => this.kill('SIGKILL');
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    // It tells what fails by an event.
    this.#run()
      .finally(() => signal.removeEventListener('abort', abort))
      .catch(() => {});
  }

  kill(signal: NodeJS.Signals): boolean {
    if (this.exitCode !== null) return false;
    this.killed = true;
    void this.#started.then(
      (process) => process.kill(signal as Signal),
      () => {},
    );
    return true;
  }

  async #run(): Promise<void> {
    try {
      const process = await this.#started;
      for await (const { channel, data } of process) {
        const stream = channel === 'stderr' ? this.stderr : this.stdout;
        if (!stream.write(data) && channel !== 'stderr')
          await new Promise<void>((resolve) => stream.once('drain', resolve));
      }
      const { end, exitCode } = await process.wait();
      this.exitCode = exitCode;
      this.stdout.end();
      this.stderr.end();
      this.emit(
        'exit',
        end.kind === 'signalled' ? null : exitCode,
        end.kind === 'signalled' ? end.signal : null,
      );
    } catch (error) {
      this.exitCode ??= 1;
      this.stdout.end();
      this.stderr.end();
      if (this.listenerCount('error') > 0) this.emit('error', error);
    }
  }

  async #with(
    work: (process: Process) => Promise<void>,
    done: (error?: Error | null) => void,
  ): Promise<void> {
    try {
      await work(await this.#started);
      done();
    } catch (error) {
      done(error as Error);
    }
  }
}
