/** Commands as the model has them: one that takes longer gets a number, and is looked at again under it. */
import type { ExecCommandArgs, SandboxExecResult } from '@openai/agents-core/sandbox';
import { elapsedSeconds, truncateOutput } from '@openai/agents-core/sandbox/internal';
import { isCayError, type ExecBody, type Process, type Sandbox } from '@cay/sdk';

const RUN_FOR_MS = 10_000;
const WRITE_FOR_MS = 250;
/** Of output that the model has not asked for, the end is kept. */
const MOST_UNREAD = 1024 * 1024;
const PTY = { cols: 80, rows: 24 };
const INTERRUPT = '\u0003';

interface Running {
  process: Process;
  tty: boolean;
  stdout: string;
  stderr: string;
  output: string;
  exitCode: number | undefined;
  ended: Promise<void>;
}

export class Processes {
  readonly #sandbox: Sandbox;
  /** Numbers are of the session, and go on after it is resumed. */
  readonly #state: { lastProcess: number };
  readonly #running = new Map<number, Running>();

  constructor(sandbox: Sandbox, state: { lastProcess: number }) {
    this.#sandbox = sandbox;
    this.#state = state;
  }

  async run(
    args: ExecCommandArgs,
    where: Pick<ExecBody, 'workdir' | 'env' | 'user'>,
  ): Promise<SandboxExecResult> {
    const began = Date.now();
    const { cmd, shell, login, tty = false } = args;
    const number = ++this.#state.lastProcess;
    const command =
      shell === undefined && !login
        ? { shell: cmd }
        : { argv: [shell ?? '/bin/bash', login ? '-lc' : '-c', cmd] };
    const process = await this.#sandbox.spawn({
      ...command,
      ...where,
      id: idOf(number),
      stdin: true,
      overflow: 'drop',
      ...(tty && { pty: PTY }),
    } as ExecBody);
    return this.#answer(number, this.#watch(number, process, tty), began, args, RUN_FOR_MS);
  }

  /** Nothing if there is no such process. */
  async write(
    number: number,
    args: { chars?: string; yieldTimeMs?: number; maxOutputTokens?: number },
  ): Promise<SandboxExecResult | undefined> {
    const began = Date.now();
    const running = this.#running.get(number) ?? (await this.#attach(number));
    if (!running) return undefined;
    const { process, tty } = running;
    const chars = args.chars ?? '';
    if (!tty && chars.includes(INTERRUPT)) process.kill('SIGINT');
    const rest = tty ? chars : chars.replaceAll(INTERRUPT, '');
    if (rest !== '') await process.write(rest);
    return this.#answer(number, running, began, args, WRITE_FOR_MS);
  }

  async endAll(): Promise<void> {
    for (const { process } of this.#running.values()) process.kill('SIGKILL');
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
    this.#running.clear();
  }

  /** Lets go of them; they run on. */
  detachAll(): void {
    for (const { process } of this.#running.values()) process.detach();
    this.#running.clear();
  }

  /** A process that another program had started in this session. */
  async #attach(number: number): Promise<Running | undefined> {
    try {
      const { pty } = await this.#sandbox.command(idOf(number));
      return this.#watch(number, await this.#sandbox.attach(idOf(number)), pty);
    } catch (error) {
      if (isCayError(error, 'not_found') || isCayError(error, 'invalid_argument')) return undefined;
      throw error;
    }
  }

  #watch(number: number, process: Process, tty: boolean): Running {
    const running: Running = {
      process,
      tty,
      stdout: '',
      stderr: '',
      output: '',
      exitCode: undefined,
      ended: undefined!,
    };
    const text = { stdout: new TextDecoder(), stderr: new TextDecoder(), pty: new TextDecoder() };
    const add = (channel: 'stdout' | 'stderr' | 'pty', data: Uint8Array) => {
      const decoded = text[channel].decode(data, { stream: true });
      const stream = channel === 'stderr' ? 'stderr' : 'stdout';
      running[stream] = (running[stream] + decoded).slice(-MOST_UNREAD);
      running.output = (running.output + decoded).slice(-MOST_UNREAD);
    };
    running.ended = (async () => {
      try {
        for await (const { channel, data } of process) add(channel, data);
        running.exitCode = (await process.wait()).exitCode;
      } catch {
        // The connection is lost, or was let go: it can be attached to again.
        this.#running.delete(number);
        running.exitCode ??= 1;
      }
    })();
    this.#running.set(number, running);
    return running;
  }

  async #answer(
    number: number,
    running: Running,
    began: number,
    { yieldTimeMs, maxOutputTokens }: { yieldTimeMs?: number; maxOutputTokens?: number },
    usualMs: number,
  ): Promise<SandboxExecResult> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, yieldTimeMs ?? usualMs)));
    await Promise.race([running.ended, late]);
    clearTimeout(timer);
    const { stdout, stderr, output, exitCode } = running;
    Object.assign(running, { stdout: '', stderr: '', output: '' });
    if (exitCode !== undefined) this.#running.delete(number);
    const shown = truncateOutput(output, maxOutputTokens);
    return {
      output: shown.text,
      stdout,
      stderr,
      wallTimeSeconds: elapsedSeconds(began),
      originalTokenCount: shown.originalTokenCount,
      ...(exitCode === undefined ? { sessionId: number } : { exitCode }),
    };
  }
}

const idOf = (number: number) => `openai-agents-${number}`;
