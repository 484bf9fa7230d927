import { openProcess, type Process } from './process.ts';
import type {
  CommandInfo,
  ExecBody,
  ExecEvent,
  ExecRequest,
  ExecResult,
  Launched,
  OutputEncoding,
  PtySize,
  Signal,
  Waited,
} from './protocol/index.ts';
import { SandboxHandle, type CallOptions } from './sandbox-handle.ts';
import { waitForCommand, type WaitOptions } from './wait.ts';

interface RunOptions extends CallOptions, Partial<Omit<ExecBody, 'argv' | 'shell'>> {
  /** The command is run once, however often the call is repeated with the same key. */
  idempotencyKey?: string;
}

/** A shell line, a program with its arguments, or everything that a command may be given. */
export type Command = string | string[] | ExecBody;

export interface LogsOptions extends CallOptions {
  command?: string;
  /** Goes on until the command ends. */
  follow?: boolean;
  /** Begins at this byte of its output. */
  offset?: number;
  /**
   * Begins with what the server has recorded then or later. Rejects `failed_precondition` for a command that
   * is not recorded.
   */
  since?: Date;
  /** Begins so many bytes before the end. */
  tailBytes?: number;
  /** Stops after so many bytes, without the event `end`. */
  limitBytes?: number;
  /** `base64` for output that is not text. */
  encoding?: OutputEncoding;
}

/** The commands of a sandbox. */
export abstract class SandboxCommands extends SandboxHandle {
  /** Runs a command to its end. Its exit code is part of the answer, whatever it is. */
  exec(command: Command, options: RunOptions = {}): Promise<ExecResult> {
    return this.call('POST', '/exec', callOf(command, options));
  }

  /** The same, event by event. */
  async *execStream(command: Command, options: RunOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    yield* this.transport.lines<ExecEvent>('POST', `${this.base}/exec`, callOf(command, options));
  }

  /** Starts a command and stays connected to it: output, input, signals. */
  async spawn(
    command: Command,
    options: CallOptions & Partial<Omit<ExecRequest, 'argv' | 'shell'>> = {},
  ): Promise<Process> {
    const { signal, ...rest } = options;
    return openProcess(await this.transport.socket(`${this.base}/exec`, { signal }), {
      exec: { ...bodyOf(command), ...rest },
    });
  }

  /** A terminal: a login shell unless another command is given. */
  shell(size: PtySize, options: CallOptions & Partial<ExecRequest> = {}): Promise<Process> {
    const { signal, ...rest } = options;
    return this.spawn({ argv: ['/bin/bash', '-l'], ...rest, pty: size } as ExecBody, { signal });
  }

  /** Connects to a command that was started before. */
  async attach(id: string, { offset = 0, signal }: CallOptions & { offset?: number } = {}): Promise<Process> {
    return openProcess(
      await this.transport.socket(`${this.base}/exec`, { signal }),
      { attach: { id, offset } },
      offset,
    );
  }

  /** Starts a command in the background. */
  launch(command: Command, options: RunOptions = {}): Promise<Launched> {
    return this.call('POST', '/commands', callOf(command, options));
  }

  async commands(options: CallOptions = {}): Promise<CommandInfo[]> {
    return (await this.call<{ commands: CommandInfo[] }>('GET', '/commands', options)).commands;
  }

  command(id: string, options: CallOptions = {}): Promise<CommandInfo> {
    return this.call('GET', `/commands/${encodeURIComponent(id)}`, options);
  }

  /**
   * A command's output that is kept, both streams in the order in which they were read: of the command that
   * the sandbox was created with, else of the one started last. Nothing if there is none.
   */
  async *logs({ command, follow = false, since, signal, ...query }: LogsOptions = {}): AsyncGenerator<
    ExecEvent,
    void,
    undefined
  > {
    const id = command ?? usual(await this.commands({ signal }));
    if (id === undefined) return;
    const path = `${this.base}/commands/${encodeURIComponent(id)}/output`;
    yield* this.transport.lines<ExecEvent>('GET', path, {
      query: { ...query, follow, since: since?.toISOString() },
      signal,
    });
  }

  /**
   * Waits for the end of a command: `completed` with the end that it had, `timed_out`, or `lost` if the
   * end is unknown. Reconnects when the connection is lost or the server restarts.
   */
  wait(options: WaitOptions = {}): Promise<Waited> {
    return waitForCommand(this.transport, this.base, options);
  }

  async signal(commandId: string, signal: Signal, options: CallOptions = {}): Promise<void> {
    await this.call('POST', `/commands/${encodeURIComponent(commandId)}/signal`, {
      ...options,
      json: { signal },
    });
  }
}

/** The id is the one of a sandbox's own command. */
function usual(commands: readonly CommandInfo[]): string | undefined {
  return (commands.find(({ id }) => id === 'main') ?? commands.at(-1))?.id;
}

function bodyOf(command: Command): Partial<ExecBody> {
  if (typeof command === 'string') return { shell: command };
  return Array.isArray(command) ? { argv: command } : command;
}

function callOf(command: Command, { signal, idempotencyKey, ...rest }: RunOptions) {
  const headers = idempotencyKey === undefined ? undefined : { 'idempotency-key': idempotencyKey };
  return { json: { ...bodyOf(command), ...rest }, headers, signal };
}
