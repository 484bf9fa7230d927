/**
 * Recorded commands: their output and their end are kept on the server, so they outlive the stop or the
 * failure of the sandbox and the restart of the server. Recorded are commands that callers leave running,
 * those with an idempotency key, and the own command of a sandbox. Others do not pay for it.
 *
 * A command is announced before the guest starts it, so a server that dies in between records it after its
 * restart. Logs are bounded for each command, each sandbox and each project: the newest output and the newest
 * commands are kept. The logs of a sandbox are removed with it.
 */
import { mkdirSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, type CommandEnd, type CommandInfo, type SandboxId } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { CommandHandle } from '../../guest/guest.ts';
import { extentOf, offsetSince, removeLog } from '../../lib/frame-log.ts';
import { valueWithin } from '../../lib/timeout.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { EventRecords } from '../../records/events/events.ts';
import type { Records } from '../../records/records.ts';
import type { CommandRow } from '../../records/tables/commands.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { ConnectGuest } from './ask-guest.ts';
import { readLog } from './read-log.ts';
import { DRAIN_MS, drainRecorders } from './drain-recorders.ts';
import { recordOwnCommand } from './record-own-command.ts';
import { findOwnCommands, isOwnCommand } from './own-command.ts';
import { logBounds } from './log-bounds.ts';
import { openRecorders, type BeginOptions } from './recorders.ts';

export interface CommandLogsOptions {
  directory: string;
  records: Records;
  connect: ConnectGuest;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'requireRoom' | 'used'>;
  /** How many commands of a sandbox may run at once. */
  mostRunning: number;
  now?(): number;
  onError?(error: unknown): void;
}

export type Announced = Pick<CommandRow, 'sandbox' | 'id' | 'argv' | 'pty' | 'overflow' | 'key'>;

export interface RecordOptions {
  pid: number;
  /** The guest started it now, so an ended command of the same id is replaced. */
  restarted: boolean;
  /** A handle from the first byte on. The recorder reads it and disposes of it. */
  handle?: CommandHandle;
}

export interface ReadOptions {
  offset?: number;
  /** Default true. */
  existing?: boolean;
  /** A handle that takes the input; see `readLog`. */
  input?: CommandHandle;
  signal?: AbortSignal | undefined;
}

export interface CommandLogs {
  /**
   * Records that a command is about to start. Does nothing if a command of that id is recorded already, or if
   * the id is that of the own command. Rejects `resource_exhausted` if the project's quota for logs is full.
   */
  announce(command: Announced): Promise<void>;
  /** Removes an announced command that the guest refused. */
  withdraw(sandbox: string, id: string): Promise<void>;
  /** Begins to record an announced command that runs. */
  record(sandbox: string, id: string, options: RecordOptions): Promise<void>;
  get(sandbox: string, id: string): Promise<CommandInfo | undefined>;
  /** Oldest first. */
  list(sandbox: string): Promise<CommandInfo[]>;
  /** A handle that reads the log. Rejects `not_found`. */
  read(sandbox: string, id: string, options?: ReadOptions): Promise<CommandHandle>;
  /**
   * Offset of the first byte recorded at or after `atMs`. Output that was written while no server ran counts
   * as recorded when the next server read it. `undefined` if the command is not recorded.
   */
  offsetSince(sandbox: string, id: string, atMs: number): Promise<number | undefined>;
  /** Resolves when the command's end is on disk; with `undefined` if the command is not recorded. */
  ended(sandbox: string, id: string): Promise<CommandEnd | undefined>;
  /** Whether the record of the own command may be about an earlier start of the sandbox. */
  looksForOwn(sandbox: string): boolean;
  /** Resolves when the record is about the command that the sandbox has now. */
  settled(sandbox: string, id: string): Promise<void>;
  /** Removes the record and the log of a command, after its recorder has ended. */
  forget(sandbox: string, id: string): Promise<void>;
  /** Records the output written so far, before the sandbox's processes end. Takes a second at most. */
  drain(sandbox: string): Promise<void>;
  /** Continues the logs of commands that run. Called once, after the recovery of sandboxes. */
  start(): Promise<void>;
  /** Stops recording. Commands keep running, and the next server continues their logs. */
  close(): Promise<void>;
}

const TRIM_EVERY_MS = 30_000;

export function openCommandLogs(options: CommandLogsOptions): CommandLogs {
  const { directory, records, connect, quota, mostRunning, now = Date.now, onError = () => {} } = options;
  const { commands, events, sandboxes } = records;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let unlisten: (() => void) | undefined;
  const placeOf = (sandbox: string) => join(directory, sandbox);
  const recorders = openRecorders({ directory, records, connect, signal: closing.signal, now, onError });

  async function forget(sandbox: string, id: string): Promise<void> {
    await recorders.get(sandbox, id)?.done;
    await commands.delete(sandbox, id);
    await removeLog(placeOf(sandbox), id);
  }

  const bounds = logBounds({ records, quota, mostRunning, runningBytes: recorders.bytesOf, forget });

  async function trim({ id, project }: SandboxRow): Promise<void> {
    await bounds.trimSandbox(id);
    await bounds.trimProject(project);
  }

  function begin(command: CommandRow, options: Omit<BeginOptions, 'afterEnd'>): void {
    recorders.begin(command, { ...options, afterEnd: trim });
  }

  const own = findOwnCommands({
    sandboxes,
    connect,
    signal: closing.signal,
    found: (row, info) =>
      recordOwnCommand(
        { commands, recorders, begin, directory: placeOf(row.id), signal: closing.signal },
        row,
        info,
      ),
    onError,
  });

  function live(command: CommandRow): CommandInfo {
    const { sandbox: _sandbox, overflow: _overflow, key: _key, ...info } = command;
    const recorder = info.end ? undefined : recorders.get(command.sandbox, command.id);
    return recorder
      ? { ...info, pid: recorder.pid, outputBytes: recorder.end, keptFrom: recorder.keptFrom }
      : info;
  }

  /** Every event of a sandbox may begin or end commands; its removal removes its logs. */
  function follow({ type, sandbox }: Parameters<Parameters<EventRecords['listen']>[0]>[0]): void {
    if (sandbox === null || !type.startsWith('sandbox.')) return;
    for (const recorder of recorders.of(sandbox).values()) recorder.nudge();
    own.look(sandbox);
    if (type === 'sandbox.removed') rm(placeOf(sandbox), { recursive: true, force: true }).catch(onError);
  }

  function trimProjects(): void {
    for (const project of recorders.projects()) bounds.trimProject(project).catch(onError);
  }

  async function sweep(): Promise<void> {
    for (const name of await readdir(directory))
      if (!closing.signal.aborted && !(await sandboxes.get(name)))
        await rm(join(directory, name), { recursive: true, force: true });
  }

  const logs: CommandLogs = {
    announce: (command) =>
      records.transaction(async (tx) => {
        const { sandbox, id } = command;
        const row = await tx.sandboxes.get(sandbox);
        // The sandbox may have been removed since the caller looked.
        if (!row) throw new CayError('not_found', `Sandbox "${sandbox}" does not exist`);
        if (isOwnCommand(row, id) || (await tx.commands.get(sandbox, id))) return;
        await bounds.requireRoom(tx, row);
        await tx.commands.insert({ ...command, pid: 0, startedAtMs: now(), outputBytes: 0, keptFrom: 0 });
      }),
    async withdraw(sandbox, id) {
      const known = await commands.get(sandbox, id);
      if (known && !known.end && !recorders.get(sandbox, id)) await forget(sandbox, id);
    },
    async record(sandbox, id, { pid, restarted, handle }) {
      let command = await commands.get(sandbox, id);
      const owner = (await sandboxes.get(sandbox))?.project;
      if (!command || recorders.get(sandbox, id) || (command.end && !restarted)) {
        await handle?.[Symbol.asyncDispose]();
        return;
      }
      if (command.end) {
        await removeLog(placeOf(sandbox), id);
        const { end: _end, ...again } = { ...command, startedAtMs: now(), outputBytes: 0, keptFrom: 0 };
        command = again;
        await commands.insert(command);
      }
      // Another call with the same idempotency key may have begun it meanwhile.
      if (recorders.get(sandbox, id)) await handle?.[Symbol.asyncDispose]();
      else begin({ ...command, pid }, { handle, fresh: true, owner });
    },
    async get(sandbox, id) {
      const command = await commands.get(sandbox, id);
      return command && live(command);
    },
    list: async (sandbox) => (await commands.list(sandbox)).map(live),
    async read(sandbox, id, { offset = 0, existing = true, input, signal } = {}) {
      const find = () => commands.get(sandbox, id);
      const command = await find();
      if (!command) throw new CayError('not_found', `Command "${id}" does not exist`);
      return readLog({
        command,
        find,
        recorder: recorders.get(sandbox, id),
        directory: placeOf(sandbox),
        offset,
        existing,
        input,
        signal,
      });
    },
    async offsetSince(sandbox, id, atMs) {
      await logs.settled(sandbox, id);
      if (!(await commands.get(sandbox, id))) return undefined;
      // A recorder may not have opened the log yet.
      const { end } = await extentOf(placeOf(sandbox), id);
      return offsetSince(placeOf(sandbox), id, atMs, end);
    },
    async ended(sandbox, id) {
      await logs.settled(sandbox, id);
      // Looked for first: once the end is recorded nothing is unfinished.
      const finishing = recorders.finishing(sandbox, id);
      return (await commands.get(sandbox, id))?.end ?? finishing;
    },
    settled: async (sandbox, id) => (id === MAIN_COMMAND_ID ? own.settled(sandbox) : undefined),
    looksForOwn: own.looking,
    forget,
    async drain(sandbox) {
      await valueWithin(own.settled(sandbox), DRAIN_MS);
      const all = recorders.of(sandbox);
      if (all.size > 0) await drainRecorders(connect, sandbox as SandboxId, all);
    },
    async start() {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      unlisten = events.listen(follow);
      timer = setInterval(trimProjects, TRIM_EVERY_MS).unref();
      const owners = new Map<string, string>();
      for (const { id, project } of await sandboxes.list({})) owners.set(id, project);
      for (const command of await commands.running()) {
        if (recorders.get(command.sandbox, command.id)) continue;
        mkdirSync(placeOf(command.sandbox), { recursive: true, mode: 0o700 });
        begin(command, { fresh: false, owner: owners.get(command.sandbox) });
      }
      for (const { id } of await sandboxes.list({ state: 'active' })) own.look(id);
      inBackground(sweep(), onError);
    },
    async close() {
      closing.abort();
      clearInterval(timer);
      unlisten?.();
      await recorders.close();
      await Promise.allSettled([own.close()]);
    },
  };

  return logs;
}
