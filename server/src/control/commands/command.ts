/**
 * Commands of sandboxes, as everything above the control plane sees them: the REST API, the WebSockets and
 * E2B's process service all call these verbs.
 *
 * **Terms.** A *command* is one program that runs inside a sandbox, named by an id that is unique in that
 * sandbox. The *own command* is the one that a sandbox was created with; its id is `main`, and every start of
 * the sandbox begins it again. A *handle* reads the output of one command and writes its input; disposing of
 * a handle detaches and leaves the command running. A *recorded* command has its output in a log on the
 * server and its end in a row, so both outlive the sandbox's stop and the server.
 *
 * **What is recorded.** Commands that a caller leaves running (`durable`), commands with an idempotency key,
 * and the own command. Others are known to the guest alone, which forgets the oldest of those that ended.
 *
 * **Idempotency keys.** A key belongs to one sandbox and one request. The claim of a key is written before
 * the guest is asked, so a repeated call finds the same command id, whatever happened in between. A key whose
 * command the guest refused is free again. A key that was used for another request rejects `conflict`.
 *
 * **Ports.** `expose` in a request makes a port reachable with a token before the command starts. A port that
 * is exposed already keeps its visibility.
 *
 * **Audit.** Every command that starts, or that the guest refuses, is one event `command.started` with the
 * line, the user and the directory; secrets of the environment are masked. Its end is one event
 * `command.ended`. Both carry the key of the caller.
 *
 * **Use.** `start`, `list` and every verb that asks the guest count as use and wake a paused sandbox.
 * `status` and `wait` never wake one, and neither does reading a recorded command.
 *
 * **Concurrency.** Any verbs may run at once, also several handles of one command. Each reader goes at its
 * own pace. While a pause waits for running commands, `start` waits too, and then wakes the sandbox.
 *
 * **Cost.** A start is one round trip to the guest and one event; a recorded one writes a row before. Reading
 * a recorded command reads a file.
 *
 * **Errors.** Every verb rejects `not_found` for a sandbox or a command that the principal's project does not
 * have, and those that need the guest reject `failed_precondition` for a sandbox that is stopped or failed.
 *
 *     const { handle } = await commands.start(principal, 'my-box', { argv: ['make', 'test'] }, { signal });
 *     await using _ = handle;
 *     for await (const chunk of handle.output) show(chunk);
 *     const end = await handle.ended;
 */
import type {
  CommandInfo,
  ExecBody,
  PtySize,
  SandboxId,
  SandboxStatus,
  Signal,
  Waited,
} from '@cay/sdk/protocol';
import type { CallOptions, CommandHandle, Guest } from '../../guest/guest.ts';
import type { Principal } from '../tenants/principal.ts';

export interface StartOptions extends CallOptions {
  /**
   * Makes the call repeatable: the same key and request answer with the command that the first call began.
   */
  idempotencyKey?: string | undefined;
  /** Records the command even without an idempotency key. */
  durable?: boolean;
}

export interface AttachedCommand {
  handle: CommandHandle;
  /** Sends signals and sizes. Absent if the command is read from its record and its sandbox does not run. */
  guest?: Pick<Guest, 'signal' | 'resize'>;
}

export interface StartedCommand extends AttachedCommand {
  sandbox: SandboxId;
  /** Resolves when the command has taken the request's `input`, or never will. Never rejects. */
  fed: Promise<void>;
}

export interface WaitOptions {
  /** Default: the own command. */
  command?: string | undefined;
  timeoutMs: number;
  /** Aborts when the caller is gone. */
  signal: AbortSignal;
}

export interface CommandVerbs {
  /**
   * Starts a command with the sandbox's user, directory and environment as defaults. Resolves when it runs.
   * `encoding` and `maxOutputBytes` of the request are left to the caller.
   */
  start(
    principal: Principal,
    ref: string,
    request: ExecBody,
    options?: StartOptions,
  ): Promise<StartedCommand>;
  get(principal: Principal, ref: string, id: string): Promise<CommandInfo>;
  /** Oldest first. Of a sandbox that does not run: those that are recorded. */
  list(principal: Principal, ref: string, options?: CallOptions): Promise<CommandInfo[]>;
  /** Reads output from an offset on. A recorded command is read from its log. */
  read(
    principal: Principal,
    ref: string,
    id: string,
    options: CallOptions & { offset: number },
  ): Promise<CommandHandle>;
  /** Reads as `read` does, and writes input if the sandbox runs. */
  attach(
    principal: Principal,
    ref: string,
    id: string,
    options: CallOptions & { offset: number },
  ): Promise<AttachedCommand>;
  /**
   * Offset of the first output that was recorded at or after `atMs`. Rejects `failed_precondition` if the
   * command is not recorded: the guest does not know when output was written.
   */
  offsetSince(principal: Principal, ref: string, id: string, atMs: number): Promise<number>;
  /** Writes to standard input; with `close`, closes it after the last byte. */
  input(
    principal: Principal,
    ref: string,
    id: string,
    data: AsyncIterable<Uint8Array>,
    options?: CallOptions & { close?: boolean | undefined },
  ): Promise<void>;
  signal(principal: Principal, ref: string, id: string, signal: Signal, options?: CallOptions): Promise<void>;
  resize(principal: Principal, ref: string, id: string, size: PtySize, options?: CallOptions): Promise<void>;
  /** Forgets an ended command and its output. Rejects `failed_precondition` while it runs. */
  forget(principal: Principal, ref: string, id: string, options?: CallOptions): Promise<void>;
  /**
   * Waits for the end of a command. While it waits the sandbox is not idle. A paused sandbox is not woken.
   * What becomes of the sandbox while it waits is an outcome (`lost`), not an error.
   */
  wait(principal: Principal, ref: string, options: WaitOptions): Promise<Waited>;
  /** State of a sandbox and its commands, in every state of the sandbox. Wakes nothing and is no use. */
  status(principal: Principal, ref: string): Promise<SandboxStatus>;
}
