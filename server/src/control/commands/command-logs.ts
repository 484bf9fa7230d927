/**
 * Durable commands: what they write and how they end is kept on the server, and so outlives the sandbox's
 * stop, its failure and the server. For commands that are left running, those with an idempotency key and the
 * one that a sandbox was created with; others do not pay for it.
 *
 * A command is recorded before it is started. A server that opens goes on recording those that have no end
 * yet. Logs are bounded for each command, each sandbox and each project, the newest output and the newest
 * commands are kept, and all of it goes away with the sandbox.
 */
import { mkdirSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, type CommandEnd, type CommandInfo, type SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { MAIN_COMMAND_ID } from '../../backends/support/start-main.ts';
import type { CommandHandle } from '../../guest/guest.ts';
import { extentOf, offsetSince, removeLog } from '../../lib/frame-log.ts';
import { valueWithin } from '../../lib/timeout.ts';
import type { Database } from '../../records/database.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { EventLog } from '../events/event-log.ts';
import type { SandboxRecords, SandboxRow } from '../../records/sandboxes.ts';
import { commandRecords, type RecordedCommand } from './command-records.ts';
import { readLog } from './read-log.ts';
import { DRAIN_MS, drainRecorders } from './drain-recorders.ts';
import { findOwnCommands, isOwnCommand, isSame } from './own-command.ts';
import { startRecorder, type Recorder } from './recorder.ts';

export interface CommandLogsOptions {
  directory: string;
  database: Database;
  sandboxes: SandboxRecords;
  backend: Backend;
  events: EventLog;
  quota: Pick<QuotaLedger, 'counts' | 'limit' | 'requireRoom' | 'used'>;
  /** How many commands of a sandbox may run at once. */
  mostRunning: number;
  now?(): number;
  onError?(error: unknown): void;
}

export type Announced = Pick<RecordedCommand, 'sandbox' | 'id' | 'argv' | 'pty' | 'overflow' | 'key'>;

export interface Started {
  pid: number;
  anew: boolean;
  /** A hold on it from its first byte on, which is read, and let go of. */
  handle?: CommandHandle;
}

export interface CommandLogs {
  /**
   * Before the command is started. One of the same id that is recorded already stays as it is, and so does
   * the sandbox's own.
   */
  announce(command: Announced): void;
  /** It could not be started. */
  withdraw(sandbox: string, id: string): Promise<void>;
  /**
   * It runs, and is recorded from now on; with `anew` not as the one of the same id that was recorded before.
   */
  record(sandbox: string, id: string, started: Started): Promise<void>;
  get(sandbox: string, id: string): CommandInfo | undefined;
  /** Oldest first. */
  list(sandbox: string): CommandInfo[];
  /** A hold on a recorded command, for reading alone. Rejects `not_found`. */
  read(sandbox: string, id: string, options?: { offset?: number; signal?: AbortSignal }): CommandHandle;
  /**
   * Where in a command's output that begins which the server has taken then or later. What was written while
   * there was no server is as old as the next one's first look at it. `undefined` if it is not recorded.
   */
  offsetSince(sandbox: string, id: string, atMs: number): Promise<number | undefined>;
  /**
   * When a recorded command has ended and that is on the disk. `undefined` if it is not recorded, or not any
   * more.
   */
  ended(sandbox: string, id: string): Promise<CommandEnd | undefined>;
  /** Whether what is recorded of the sandbox's own command may be about an earlier one. */
  looksForOwn(sandbox: string): boolean;
  /** When what is recorded of a command is about the one that the sandbox has now. */
  settled(sandbox: string, id: string): Promise<void>;
  /** Forgets a command and its output. Waits for its end. */
  forget(sandbox: string, id: string): Promise<void>;
  /**
   * Before the sandbox's processes end: takes what they have written so far, as far as that is a matter of
   * moments.
   */
  drain(sandbox: string): Promise<void>;
  /** Lets go; commands run on, and are recorded further by the next server. */
  close(): Promise<void>;
}

const MOST_COMMANDS = 256;
const MOST_BYTES = 128 * 1024 * 1024;
const TRIM_AT_ONCE = 100;
const TRIM_EVERY_MS = 30_000;

export function openCommandLogs(options: CommandLogsOptions): CommandLogs {
  const {
    directory,
    database,
    sandboxes,
    backend,
    events,
    quota,
    mostRunning,
    now = Date.now,
    onError = () => {},
  } = options;
  const records = commandRecords(database);
  const recorders = new Map<string, Recorder>();
  /** Until the end of a command is recorded. */
  const unfinished = new Map<string, Promise<CommandEnd | undefined>>();
  /** Whose the commands are that are being recorded. */
  const owners = new WeakMap<Recorder, string>();
  const closing = new AbortController();
  const keyOf = (sandbox: string, id: string) => `${sandbox}/${id}`;
  const placeOf = (sandbox: string) => join(directory, sandbox);

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
      backend,
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
        if (end) await finish(command, recorder, end, !fresh);
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

  const own = findOwnCommands({ sandboxes, backend, signal: closing.signal, found: recordOwn, onError });

  async function recordOwn({ id: sandbox, spec }: SandboxRow, info: CommandInfo): Promise<void> {
    const id = MAIN_COMMAND_ID;
    const known = records.get(sandbox, id);
    if (known && isSame(known, info)) return;
    // Its recorder finds that what it recorded is gone, and says so first.
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

  /**
   * The event first: a server that dies in between comes to the same end again, and sees that it was told.
   */
  async function finish(
    command: RecordedCommand,
    recorder: Recorder,
    end: CommandEnd,
    resumed: boolean,
  ): Promise<void> {
    const { sandbox, id, key } = command;
    const row = sandboxes.get(sandbox);
    if (!row) return;
    if (!resumed || !(await wasTold(command))) {
      events.append({
        type: 'command.ended',
        project: row.project,
        sandbox,
        key,
        data: { command: id, ...end },
      });
    }
    for (;;) {
      try {
        records.ended(
          sandbox,
          id,
          end,
          { pid: recorder.pid, outputBytes: recorder.end, keptFrom: recorder.keptFrom },
          now(),
        );
        break;
      } catch (error) {
        // A disk that is full will have room again; without the record the command would seem to run on.
        onError(error);
        if (closing.signal.aborted) return;
        await new Promise((resolve) => setTimeout(resolve, 1000).unref());
      }
    }
    await trim(sandbox);
    await trimProject(row.project);
  }

  async function wasTold({ sandbox, id, startedAtMs }: RecordedCommand): Promise<boolean> {
    for await (const { data } of events.export({ sandbox, type: 'command.ended', sinceMs: startedAtMs }))
      if (data['command'] === id) return true;
    return false;
  }

  /** Lets go of the oldest that have ended, as far as the bounds ask for it. */
  async function trim(sandbox: string): Promise<void> {
    for (const id of records.beyond(sandbox, { commands: MOST_COMMANDS, bytes: MOST_BYTES }))
      await logs.forget(sandbox, id);
  }

  function runningBytes(project: string): number {
    let bytes = 0;
    for (const recorder of recorders.values())
      if (owners.get(recorder) === project) bytes += recorder.end - recorder.keptFrom;
    return bytes;
  }

  /** The same for all sandboxes of a project, by its quota. Nobody else's are touched. */
  async function trimProject(project: string): Promise<void> {
    const limit = quota.limit(project, 'logBytes');
    if (limit === null) return;
    for (let over = quota.used(project, 'logBytes').used - limit; over > 0;) {
      const oldest = records.oldestOf(project, TRIM_AT_ONCE);
      if (oldest.length === 0) return;
      for (const { sandbox, id, bytes } of oldest) {
        if (over <= 0) return;
        await logs.forget(sandbox, id);
        over -= bytes;
      }
    }
  }

  /**
   * What runs is not cut off, so no more is begun by a project whose running commands have written all that
   * it may keep.
   */
  function requireRoom(sandbox: string): void {
    const project = sandboxes.get(sandbox)?.project;
    const limit = project === undefined ? null : quota.limit(project, 'logBytes');
    if (project !== undefined && limit !== null && runningBytes(project) >= limit)
      quota.requireRoom(project, 'logBytes', 1);
  }

  /**
   * A command whose start was not answered may run, and is recorded as running until somebody finds out. A
   * guest that a program inside has taken the place of can leave any number of starts unanswered.
   */
  function requireKnownEnds(sandbox: string): void {
    const most = mostRunning + MOST_COMMANDS;
    if (records.unended(sandbox) < most) return;
    throw new CayError(
      'resource_exhausted',
      `Sandbox "${sandbox}" has ${most} recorded commands whose end is not known, as many as it may have`,
      {
        details: { limit: 'unendedCommands', maximum: most },
        hint: 'wait for some to end, end them, or forget those that the sandbox does not have any more',
      },
    );
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
      requireRoom(command.sandbox);
      requireKnownEnds(command.sandbox);
      const inserted = records.insert({
        ...command,
        pid: 0,
        startedAtMs: now(),
        outputBytes: 0,
        keptFrom: 0,
      });
      // It may have been removed since the caller looked.
      if (!inserted) throw new CayError('not_found', `Sandbox "${command.sandbox}" does not exist`);
    },
    async withdraw(sandbox, id) {
      const known = records.get(sandbox, id);
      if (known && !known.end && !recorders.has(keyOf(sandbox, id))) await logs.forget(sandbox, id);
    },
    async record(sandbox, id, { pid, anew, handle }) {
      let command = records.get(sandbox, id);
      if (!command || recorders.has(keyOf(sandbox, id)) || (command.end && !anew)) {
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
    read(sandbox, id, { offset = 0, signal } = {}) {
      const find = () => records.get(sandbox, id);
      const command = find();
      if (!command) throw new CayError('not_found', `Command "${id}" does not exist`);
      return readLog({
        command,
        find,
        recorder: recorders.get(keyOf(sandbox, id)),
        directory: placeOf(sandbox),
        offset,
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
      if (all.size > 0) await drainRecorders(backend, sandbox as SandboxId, all);
    },
    async close() {
      closing.abort();
      clearInterval(timer);
      unlisten();
      await Promise.allSettled([...recorders.values()].map(({ done }) => done));
    },
  };

  /** Logs go away with their sandbox, and a sandbox that changes is looked at again. */
  const unlisten = events.listen(({ type, sandbox }) => {
    if (sandbox === null || !type.startsWith('sandbox.')) return;
    for (const [key, recorder] of recorders) if (key.startsWith(`${sandbox}/`)) recorder.nudge();
    own.look(sandbox);
    if (type === 'sandbox.removed') rm(placeOf(sandbox), { recursive: true, force: true }).catch(onError);
  });

  async function sweep(): Promise<void> {
    for (const name of await readdir(directory))
      if (!sandboxes.get(name)) await rm(join(directory, name), { recursive: true, force: true });
  }

  quota.counts('logBytes', 'ended', records.endedBytes);
  quota.counts('logBytes', 'running', runningBytes);
  const timer = setInterval(() => {
    const projects = new Set([...recorders.values()].flatMap((recorder) => owners.get(recorder) ?? []));
    for (const project of projects) trimProject(project).catch(onError);
  }, TRIM_EVERY_MS).unref();
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  for (const command of records.running()) {
    mkdirSync(placeOf(command.sandbox), { recursive: true, mode: 0o700 });
    begin(command, { fresh: false });
  }
  for (const { id } of sandboxes.list({ state: 'active' })) own.look(id);
  sweep().catch(onError);
  return logs;
}
