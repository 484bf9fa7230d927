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
import type { Database } from '../../records/database.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { EventLog } from '../events/event-log.ts';
import type { SandboxRecords, SandboxRow } from '../../records/sandboxes.ts';
import type { ConnectGuest } from './ask-guest.ts';
import { commandRecords, type RecordedCommand } from './command-records.ts';
import { readLog } from './read-log.ts';
import { DRAIN_MS, drainRecorders } from './drain-recorders.ts';
import { findOwnCommands, isOwnCommand, isSame } from './own-command.ts';
import { logBounds } from './log-bounds.ts';
import { endRecorder } from './record-end.ts';
import { startRecorder, type Recorder } from './recorder.ts';

export interface CommandLogsOptions {
  directory: string;
  database: Database;
  sandboxes: Pick<SandboxRecords, 'get' | 'list'>;
  connect: ConnectGuest;
  events: Pick<EventLog, 'append' | 'export' | 'listen'>;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'requireRoom' | 'used'>;
  /** How many commands of a sandbox may run at once. */
  mostRunning: number;
  now?(): number;
  onError?(error: unknown): void;
}

export type Announced = Pick<RecordedCommand, 'sandbox' | 'id' | 'argv' | 'pty' | 'overflow' | 'key'>;

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
   * the id is that of the own command. Throws `resource_exhausted` if the project's quota for logs is full.
   */
  announce(command: Announced): void;
  /** Removes an announced command that the guest refused. */
  withdraw(sandbox: string, id: string): Promise<void>;
  /** Begins to record an announced command that runs. */
  record(sandbox: string, id: string, options: RecordOptions): Promise<void>;
  get(sandbox: string, id: string): CommandInfo | undefined;
  /** Oldest first. */
  list(sandbox: string): CommandInfo[];
  /** A handle that reads the log. Throws `not_found`. */
  read(sandbox: string, id: string, options?: ReadOptions): CommandHandle;
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
  start(): void;
  /** Stops recording. Commands keep running, and the next server continues their logs. */
  close(): Promise<void>;
}

const TRIM_EVERY_MS = 30_000;

export function openCommandLogs(options: CommandLogsOptions): CommandLogs {
  const {
    directory,
    database,
    sandboxes,
    connect,
    events,
    quota,
    mostRunning,
    now = Date.now,
    onError = () => {},
  } = options;
  const records = commandRecords(database);
  const recorders = new Map<string, Recorder>();
  /** Resolve when the end of a command is recorded. */
  const unfinished = new Map<string, Promise<CommandEnd | undefined>>();
  /** Projects of the commands that are being recorded. */
  const owners = new WeakMap<Recorder, string>();
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let unlisten: (() => void) | undefined;
  const keyOf = (sandbox: string, id: string) => `${sandbox}/${id}`;
  const placeOf = (sandbox: string) => join(directory, sandbox);
  const recordEnd = endRecorder({ records, events, now, signal: closing.signal, onError });
  const bounds = logBounds({
    records,
    sandboxes,
    quota,
    mostRunning,
    runningBytes,
    forget: (sandbox, id) => logs.forget(sandbox, id),
  });

  function begin(
    command: RecordedCommand,
    { handle, fresh }: { handle?: CommandHandle | undefined; fresh: boolean },
  ): void {
    const { sandbox, id } = command;
    const { signal } = closing;
    const recorder = startRecorder({
      command,
      handle,
      fresh,
      directory: placeOf(sandbox),
      connect,
      sandboxes,
      now,
      signal,
      onError,
    });
    recorders.set(keyOf(sandbox, id), recorder);
    const owner = sandboxes.get(sandbox)?.project;
    if (owner !== undefined) owners.set(recorder, owner);
    const finished = recorder.done
      .then(async (end) => {
        const row = end && sandboxes.get(sandbox);
        if (row && (await recordEnd({ command, row, recorder, end, resumed: !fresh }))) {
          await bounds.trimSandbox(sandbox);
          await bounds.trimProject(row.project);
        }
        return end;
      })
      .catch((error: unknown) => {
        onError(error);
        return undefined;
      })
      .finally(() => {
        if (recorders.get(keyOf(sandbox, id)) === recorder) recorders.delete(keyOf(sandbox, id));
        if (unfinished.get(keyOf(sandbox, id)) === finished) unfinished.delete(keyOf(sandbox, id));
      });
    unfinished.set(keyOf(sandbox, id), finished);
  }

  const own = findOwnCommands({ sandboxes, connect, signal: closing.signal, found: recordOwn, onError });

  async function recordOwn({ id: sandbox, spec }: SandboxRow, info: CommandInfo): Promise<void> {
    const id = MAIN_COMMAND_ID;
    const known = records.get(sandbox, id);
    if (known && isSame(known, info)) return;
    // The recorder of the earlier command finds that the guest has another one, and records its end as lost.
    if (known) await unfinished.get(keyOf(sandbox, id));
    if (closing.signal.aborted) return;
    await removeLog(placeOf(sandbox), id);
    const { pid, startedAtMs } = info;
    const command = {
      sandbox,
      id,
      argv: spec.cmd!,
      pty: false,
      overflow: 'drop',
      key: null,
      pid,
      startedAtMs,
      outputBytes: 0,
      keptFrom: 0,
    } as const;
    if (records.insert(command)) begin(command, { fresh: true });
  }

  function runningBytes(project: string): number {
    let bytes = 0;
    for (const recorder of recorders.values())
      if (owners.get(recorder) === project) bytes += recorder.end - recorder.keptFrom;
    return bytes;
  }

  function live(command: RecordedCommand): CommandInfo {
    const { sandbox: _sandbox, overflow: _overflow, key: _key, ...info } = command;
    const recorder = info.end ? undefined : recorders.get(keyOf(command.sandbox, command.id));
    return recorder
      ? { ...info, pid: recorder.pid, outputBytes: recorder.end, keptFrom: recorder.keptFrom }
      : info;
  }

  const logs: CommandLogs = {
    announce(command) {
      if (
        records.get(command.sandbox, command.id) ||
        isOwnCommand(sandboxes.get(command.sandbox), command.id)
      )
        return;
      bounds.requireRoom(command.sandbox);
      const inserted = records.insert({
        ...command,
        pid: 0,
        startedAtMs: now(),
        outputBytes: 0,
        keptFrom: 0,
      });
      // The sandbox may have been removed since the caller looked.
      if (!inserted) throw new CayError('not_found', `Sandbox "${command.sandbox}" does not exist`);
    },
    async withdraw(sandbox, id) {
      const known = records.get(sandbox, id);
      if (known && !known.end && !recorders.has(keyOf(sandbox, id))) await logs.forget(sandbox, id);
    },
    async record(sandbox, id, { pid, restarted, handle }) {
      let command = records.get(sandbox, id);
      if (!command || recorders.has(keyOf(sandbox, id)) || (command.end && !restarted)) {
        await handle?.[Symbol.asyncDispose]();
        return;
      }
      if (command.end) {
        await removeLog(placeOf(sandbox), id);
        const { end: _end, ...again } = { ...command, startedAtMs: now(), outputBytes: 0, keptFrom: 0 };
        command = again;
        records.insert(command);
      }
      begin({ ...command, pid }, { handle, fresh: true });
    },
    get(sandbox, id) {
      const command = records.get(sandbox, id);
      return command && live(command);
    },
    list: (sandbox) => records.list(sandbox).map(live),
    read(sandbox, id, { offset = 0, existing = true, input, signal } = {}) {
      const find = () => records.get(sandbox, id);
      const command = find();
      if (!command) throw new CayError('not_found', `Command "${id}" does not exist`);
      return readLog({
        command,
        find,
        recorder: recorders.get(keyOf(sandbox, id)),
        directory: placeOf(sandbox),
        offset,
        existing,
        input,
        signal,
      });
    },
    async offsetSince(sandbox, id, atMs) {
      await logs.settled(sandbox, id);
      if (!records.get(sandbox, id)) return undefined;
      // A recorder may not have opened the log yet.
      const { end } = await extentOf(placeOf(sandbox), id);
      return offsetSince(placeOf(sandbox), id, atMs, end);
    },
    async ended(sandbox, id) {
      await logs.settled(sandbox, id);
      return records.get(sandbox, id)?.end ?? unfinished.get(keyOf(sandbox, id));
    },
    settled: async (sandbox, id) => (id === MAIN_COMMAND_ID ? own.settled(sandbox) : undefined),
    looksForOwn: own.looking,
    async forget(sandbox, id) {
      await recorders.get(keyOf(sandbox, id))?.done;
      records.delete(sandbox, id);
      await removeLog(placeOf(sandbox), id);
    },
    async drain(sandbox) {
      await valueWithin(own.settled(sandbox), DRAIN_MS);
      const all = new Map<string, Recorder>();
      for (const [key, recorder] of recorders)
        if (key.startsWith(`${sandbox}/`)) all.set(key.slice(sandbox.length + 1), recorder);
      if (all.size > 0) await drainRecorders(connect, sandbox as SandboxId, all);
    },
    start() {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      unlisten = events.listen(follow);
      timer = setInterval(trimProjects, TRIM_EVERY_MS).unref();
      for (const command of records.running()) {
        mkdirSync(placeOf(command.sandbox), { recursive: true, mode: 0o700 });
        begin(command, { fresh: false });
      }
      for (const { id } of sandboxes.list({ state: 'active' })) own.look(id);
      sweep().catch(onError);
    },
    async close() {
      closing.abort();
      clearInterval(timer);
      unlisten?.();
      await Promise.allSettled([...recorders.values()].map(({ done }) => done));
    },
  };

  /** Every event of a sandbox may begin or end commands; its removal removes its logs. */
  function follow({ type, sandbox }: Parameters<Parameters<EventLog['listen']>[0]>[0]): void {
    if (sandbox === null || !type.startsWith('sandbox.')) return;
    for (const [key, recorder] of recorders) if (key.startsWith(`${sandbox}/`)) recorder.nudge();
    own.look(sandbox);
    if (type === 'sandbox.removed') rm(placeOf(sandbox), { recursive: true, force: true }).catch(onError);
  }

  function trimProjects(): void {
    const projects = new Set([...recorders.values()].flatMap((recorder) => owners.get(recorder) ?? []));
    for (const project of projects) bounds.trimProject(project).catch(onError);
  }

  async function sweep(): Promise<void> {
    for (const name of await readdir(directory))
      if (!sandboxes.get(name)) await rm(join(directory, name), { recursive: true, force: true });
  }

  return logs;
}
