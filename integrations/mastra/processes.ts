import {
  ProcessHandle,
  SandboxProcessManager,
  type CommandResult,
  type ProcessInfo,
  type SpawnProcessOptions,
} from '@mastra/core/workspace';
import { isCayError, type CommandInfo, type Process, type Sandbox } from '@cay/sdk';
import { shellExitCode } from '@cay/sdk/client';
import { randomUUID } from 'node:crypto';
import { posix } from 'node:path';
import type { CaySandbox } from './sandbox.ts';

/** Commands of this package. Those of others in the sandbox are listed too. */
const PREFIX = 'mastra-';

export class CayProcessManager extends SandboxProcessManager<CaySandbox> {
  override async spawn(command: string, options: SpawnProcessOptions = {}): Promise<ProcessHandle> {
    const handle = await this.#start(command, options).catch(async (error: unknown) => {
      // A command that has not started can be started again, in a sandbox that is there.
      if (!isCayError(error) || options.abortSignal?.aborted || !(await this.sandbox.isGone())) throw error;
      await this.sandbox.ensureRunning();
      return this.#start(command, options);
    });
    this._tracked.set(handle.pid, handle);
    return handle;
  }

  override async list(): Promise<ProcessInfo[]> {
    return (await this.sandbox.sandbox.commands())
      .filter(({ id }) => !this._dismissed.has(id))
      .map(({ id, argv, end }) => ({
        pid: id,
        command: this._tracked.get(id)?.command ?? argv.join(' '),
        running: end === undefined,
        ...(end && { exitCode: shellExitCode(end) }),
      }));
  }

  /** A process that another program started is connected to. */
  override async get(pid: string): Promise<ProcessHandle | undefined> {
    const tracked = this._tracked.get(pid);
    if (tracked || this._dismissed.has(pid)) return tracked;
    const { sandbox } = this.sandbox;
    const found = (await sandbox.commands()).find(({ id }) => id === pid);
    if (!found) return undefined;
    const handle = new CayProcessHandle(await sandbox.attach(pid), {}, found);
    this._tracked.set(pid, handle);
    return handle;
  }

  /** Lets go of them all; they run on as long as the sandbox does. */
  detachAll(): void {
    for (const handle of this._tracked.values()) (handle as CayProcessHandle).detach();
    this._tracked.clear();
  }

  async #start(command: string, options: SpawnProcessOptions): Promise<CayProcessHandle> {
    const { sandbox, workingDirectory } = this.sandbox;
    const { cwd = workingDirectory, env, timeout, stdinMode = 'pipe' } = options;
    const merged = Object.entries({ ...this.sandbox.getEnv(), ...this.env, ...env });
    const process = await sandbox.spawn(command, {
      id: PREFIX + randomUUID(),
      env: Object.fromEntries(merged.filter((entry): entry is [string, string] => entry[1] !== undefined)),
      stdin: stdinMode === 'pipe',
      ...(cwd !== undefined && { workdir: posix.resolve(homeOf(sandbox), expanded(cwd, sandbox)) }),
      ...(timeout !== undefined && timeout > 0 && { timeoutMs: timeout }),
    });
    const handle = new CayProcessHandle(process, options);
    handle.command = command;
    return handle;
  }
}

const homeOf = ({ info }: Sandbox) => info.workdir;
const expanded = (path: string, sandbox: Sandbox) => path.replace(/^~(?=\/|$)/, homeOf(sandbox));

class CayProcessHandle extends ProcessHandle {
  readonly pid: string;
  readonly #process: Process;
  readonly #ignoresInput: boolean;
  readonly #result: Promise<CommandResult>;
  readonly #began: number;
  #exitCode: number | undefined;
  #killed = false;

  constructor(process: Process, options: SpawnProcessOptions, known?: CommandInfo) {
    super(options);
    this.pid = process.id;
    this.#process = process;
    this.#ignoresInput = options.stdinMode === 'ignore';
    this.#began = known?.startedAtMs ?? Date.now();
    const { abortSignal } = options;
    const abort = () => void this.kill();
    if (abortSignal?.aborted) abort();
    abortSignal?.addEventListener('abort', abort, { once: true });
    this.#result = this.#run().finally(() => abortSignal?.removeEventListener('abort', abort));
    // A caller that does not wait must get no unhandled rejection.
    this.#result.catch(() => {});
  }

  get exitCode(): number | undefined {
    return this.#exitCode;
  }

  override wait(): Promise<CommandResult> {
    return this.#result;
  }

  /** Ends the whole process tree inside. */
  async kill(): Promise<boolean> {
    if (this.#exitCode !== undefined) return false;
    this.#killed = true;
    this.#process.kill('SIGKILL');
    await this.#process.ended.catch(() => {});
    return true;
  }

  async sendStdin(data: string): Promise<void> {
    this.#refuseInput('send input to');
    await this.#process.write(data);
  }

  override async closeStdin(): Promise<void> {
    this.#refuseInput('close the input of');
    this.#process.closeStdin();
  }

  detach(): void {
    this.#process.detach();
  }

  #refuseInput(what: string): void {
    const why = this.#ignoresInput
      ? 'it has no input'
      : this.#exitCode !== undefined
        ? 'it has ended'
        : undefined;
    if (why !== undefined) throw new Error(`Cannot ${what} process ${this.pid}: ${why}`);
  }

  async #run(): Promise<CommandResult> {
    const text = { stdout: new TextDecoder(), stderr: new TextDecoder(), pty: new TextDecoder() };
    for await (const { channel, data } of this.#process) {
      const decoded = text[channel].decode(data, { stream: true });
      if (decoded === '') continue;
      if (channel === 'stderr') this.emitStderr(decoded);
      else this.emitStdout(decoded);
    }
    const { end, exitCode } = await this.#process.wait();
    this.#exitCode = exitCode;
    return {
      success: exitCode === 0,
      exitCode,
      stdout: this.stdout,
      stderr: this.stderr,
      executionTimeMs: Date.now() - this.#began,
      timedOut: end.kind === 'timed_out',
      killed: this.#killed || end.kind === 'timed_out' || end.kind === 'oom_killed',
      stdoutTruncated: this.stdoutTruncated,
      stderrTruncated: this.stderrTruncated,
      stdoutDroppedBytes: this.stdoutDroppedBytes,
      stderrDroppedBytes: this.stderrDroppedBytes,
    };
  }
}
