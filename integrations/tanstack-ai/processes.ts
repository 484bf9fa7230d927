import type { ExecResult, SpawnHandle } from '@tanstack/ai-sandbox';
import type { Process, Sandbox, Signal } from '@cay/sdk';
import { randomUUID } from 'node:crypto';
import { constants } from 'node:os';

/** Beyond so much that nobody reads, the process waits, as with a pipe. */
const MOST_UNREAD = 4 * 1024 * 1024;

interface Where {
  workdir: string;
  env: Record<string, string>;
}

/** A signal that aborts ends the whole process tree; the result says so by its exit code. */
export async function exec(
  sandbox: Sandbox,
  command: string,
  where: Where,
  signal: AbortSignal | undefined,
): Promise<ExecResult> {
  signal?.throwIfAborted();
  const id = `tanstack-${randomUUID()}`;
  const stop = () => void sandbox.signal(id, 'SIGKILL').catch(() => {});
  const held = { stdout: '', stderr: '' };
  let exitCode = 1;
  signal?.addEventListener('abort', stop, { once: true });
  try {
    for await (const event of sandbox.execStream(command, { id, ...where })) {
      if (event.type === 'end') ({ exitCode } = event);
      if (event.type === 'stdout' || event.type === 'stderr') held[event.type] += event.data;
      if (event.type === 'started' && signal?.aborted) stop();
    }
  } finally {
    signal?.removeEventListener('abort', stop);
  }
  return { ...held, exitCode };
}

export async function spawn(
  sandbox: Sandbox,
  command: string,
  where: Where,
  signal: AbortSignal | undefined,
): Promise<SpawnHandle> {
  signal?.throwIfAborted();
  const process = await sandbox.spawn(command, { ...where, stdin: true });
  const kill = () => process.kill('SIGKILL');
  if (signal?.aborted) kill();
  signal?.addEventListener('abort', kill, { once: true });
  const texts = { stdout: new Text(), stderr: new Text() };
  const pumped = pump(process, texts).finally(() => signal?.removeEventListener('abort', kill));
  pumped.catch(() => {});
  return {
    pid: process.pid,
    stdout: texts.stdout.read(),
    stderr: texts.stderr.read(),
    stdin: {
      write: (data) => process.write(data),
      async end() {
        process.closeStdin();
      },
    },
    async wait() {
      return (await process.wait()).exitCode;
    },
    /** Resolves when the process is gone, if the signal is one that ends it at once. */
    async kill(given) {
      const name = signalName(given);
      process.kill(name);
      if (name === 'SIGKILL') await process.ended.catch(() => {});
    },
  };
}

function signalName(given: NodeJS.Signals | number | undefined): Signal {
  if (given === undefined) return 'SIGKILL';
  const name =
    typeof given === 'number'
      ? Object.entries(constants.signals).find(([, number]) => number === given)?.[0]
      : given;
  return (name ?? 'SIGKILL') as Signal;
}

async function pump(process: Process, texts: { stdout: Text; stderr: Text }): Promise<void> {
  try {
    for await (const { channel, data } of process) await texts[channel as 'stdout' | 'stderr'].write(data);
    for (const text of Object.values(texts)) text.end();
  } catch (error) {
    for (const text of Object.values(texts)) text.end(error);
  }
}

/** Text that one side writes and one side reads; the writer waits for a reader that is slow. */
class Text {
  readonly #decoder = new TextDecoder();
  readonly #chunks: string[] = [];
  #unread = 0;
  #over = false;
  #left = false;
  #error: unknown;
  #wake: (() => void) | undefined;
  #room: (() => void) | undefined;

  async write(data: Uint8Array): Promise<void> {
    this.#add(this.#decoder.decode(data, { stream: true }));
    while (this.#unread > MOST_UNREAD && !this.#left)
      await new Promise<void>((resolve) => (this.#room = resolve));
  }

  end(error?: unknown): void {
    this.#add(this.#decoder.decode());
    this.#error = error;
    this.#over = true;
    this.#wake?.();
  }

  async *read(): AsyncGenerator<string, void, undefined> {
    try {
      for (;;) {
        const chunk = this.#chunks.shift();
        if (chunk !== undefined) {
          this.#unread -= chunk.length;
          this.#room?.();
          yield chunk;
        } else if (this.#over) {
          if (this.#error) throw this.#error;
          return;
        } else await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      // Nobody reads what comes from now on.
      this.#left = true;
      this.#room?.();
    }
  }

  #add(text: string): void {
    if (text === '' || this.#left) return;
    this.#chunks.push(text);
    this.#unread += text.length;
    this.#wake?.();
  }
}
