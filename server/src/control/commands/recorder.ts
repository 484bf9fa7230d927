/**
 * Records one command: writes its output to a log on disk until the command ends. After a lost connection, a
 * pause of the sandbox or a restart of the server, it continues where the log stops. The guest keeps output
 * meanwhile; output that the guest had to drop becomes a gap.
 *
 * It attaches to the guest as long as the sandbox runs. Otherwise it waits for the next event of the sandbox
 * (`nudge`), and polls with a growing interval in case an event was missed.
 */
import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError, type CommandEnd, type SandboxId } from '@cay/sdk/protocol';
import type { CommandHandle, OutputChunk, OutputGap } from '../../guest/guest.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import { openFrameLog, type FrameLog } from '../../lib/frame-log.ts';
import type { CommandRow } from '../../records/tables/commands.ts';
import type { SandboxRecords } from '../../records/tables/sandboxes.ts';
import { DISK_FULL_RETRY_MS } from '../capacity/retry-on-disk-full.ts';
import { commandInGuest, type ConnectGuest } from './ask-guest.ts';
import { FORGOTTEN_END, hasEnded, lostWith } from './lost-end.ts';
import { outputPace } from './output-pace.ts';
import { isOwnCommand, isSame } from './own-command.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface RecorderOptions {
  command: CommandRow;
  /** The handle of the call that started the command, which is read first. */
  handle?: CommandHandle | undefined;
  /** False if an earlier server recorded some of the output. */
  fresh: boolean;
  directory: string;
  connect: ConnectGuest;
  sandboxes: Pick<SandboxRecords, 'get'>;
  now(): number;
  /** Ends the recording. The command keeps running. */
  signal: AbortSignal;
  onError(error: unknown): void;
}

/** A reader of a log that is being written. */
export interface Reader {
  /** Offset of the next byte that it reads. */
  position: number;
}

/** A connection to the command, or its end if the guest has another command under the same id. */
type Attached = { kind: 'handle'; handle: CommandHandle } | { kind: 'lost'; end: CommandEnd };

export interface Recorder {
  readonly pid: number;
  readonly end: number;
  readonly keptFrom: number;
  /** Readers that a command with `overflow: wait` waits for. */
  readonly readers: Set<Reader>;
  /** Resolves when there is more to read, or the recording is over. */
  changed(): Promise<void>;
  /** Called by a reader that has moved its position. */
  taken(): void;
  /** Looks at the sandbox again now. */
  nudge(): void;
  /** Does not wait for readers until it is disposed of, because the sandbox's processes are about to end. */
  hurry(): Disposable;
  /**
   * Resolves with the command's end when all output can be read; `undefined` if the recording was aborted.
   */
  readonly ended: Promise<CommandEnd | undefined>;
  /** Resolves as `ended` does, when the output is synced to disk. */
  readonly done: Promise<CommandEnd | undefined>;
}

export const KINDS = { stdout: 1, stderr: 2, pty: 3 } as const;

/** How far the slowest reader may be behind before a command with `overflow: wait` is paused. */
const AHEAD = 4 * 1024 * 1024;
const RESTARTED_END: CommandEnd = {
  kind: 'lost',
  reason: 'The sandbox was started again before the command ended',
};
const SHORTEST_WAIT_MS = 25;
const LONGEST_WAIT_MS = 5000;

export function startRecorder(options: RecorderOptions): Recorder {
  const { command, handle: first, fresh, directory, sandboxes, now, signal, onError } = options;
  const { sandbox, id } = command;
  let log: FrameLog | undefined;
  const waiters = new Set<() => void>();
  const wakers = new Set<() => void>();
  const readers = new Set<Reader>();
  const ended = Promise.withResolvers<CommandEnd | undefined>();
  let held = first;
  let pid = command.pid;
  let finished = false;
  const paced = outputPace(signal);
  let hurried = 0;
  /** Whether there was an event since the sandbox was looked at. */
  let nudged = false;
  const wake = (all: Set<() => void>) => {
    for (const resolve of all) resolve();
    all.clear();
  };

  async function run(): Promise<CommandEnd | undefined> {
    const opened = await untilRoom(options, async () => {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      return openFrameLog({ directory, name: id, fresh });
    });
    if (!opened) return undefined;
    log = opened;
    wake(waiters);
    try {
      const end = await follow(opened);
      ended.resolve(end);
      if (end) await opened.sync();
      return end;
    } finally {
      await opened.close();
    }
  }

  async function follow(into: FrameLog): Promise<CommandEnd | undefined> {
    for (let waitMs = SHORTEST_WAIT_MS; !signal.aborted; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      nudged = false;
      const row = await sandboxes.get(sandbox);
      if (!row) return undefined;
      if (hasEnded(row)) return lostWith(row);
      if (row.state === 'active') {
        const before = into.end;
        const end = await record(into);
        if (end) return end;
        if (into.end > before) waitMs = SHORTEST_WAIT_MS;
      }
      await pause(waitMs);
    }
    return undefined;
  }

  /** Records output as long as there is a connection. Resolves with the end if the command ended. */
  async function record(into: FrameLog): Promise<CommandEnd | undefined> {
    try {
      const attached: Attached = held
        ? { kind: 'handle', handle: held }
        : await attach(options, into.end, aborted);
      if (attached.kind === 'lost') return attached.end;
      await using handle = attached.handle;
      held = handle;
      pid = handle.pid;
      for await (const chunk of handle.output) await take(into, chunk);
      const end = await handle.ended;
      return end.kind === 'lost' ? undefined : end;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (isCayError(error, 'not_found') && (await sandboxes.get(sandbox))?.state === 'active')
        return FORGOTTEN_END;
      // Any other failure is retried.
      if (!(error instanceof CayError)) onError(error);
      return undefined;
    } finally {
      held = undefined;
    }
  }

  async function take(into: FrameLog, chunk: OutputChunk | OutputGap): Promise<void> {
    const length = chunk.channel === 'gap' ? chunk.bytes : chunk.data.length;
    // Skips bytes that the log has already, and marks bytes that are missing as a gap.
    const known = Math.min(Math.max(0, into.end - chunk.offset), length);
    const missing = Math.max(0, chunk.offset - into.end) + (chunk.channel === 'gap' ? length - known : 0);
    if (missing > 0) await untilRoom(options, () => into.skip(missing, now()));
    if (chunk.channel !== 'gap' && known < length)
      await untilRoom(options, () => into.append(KINDS[chunk.channel], chunk.data.subarray(known), now()));
    wake(waiters);
    await paced(length);
    while (
      command.overflow === 'wait' &&
      hurried === 0 &&
      !signal.aborted &&
      behind(readers, into.end) > AHEAD
    )
      await new Promise<void>((resolve) => wakers.add(resolve));
  }

  async function pause(ms: number): Promise<void> {
    if (signal.aborted || nudged) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      wakers.add(resolve);
      timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
  }

  /**
   * Rejects when the recording is aborted, so that closing does not wait for a guest that does not answer.
   */
  const aborted = new Promise<never>((_, reject) =>
    signal.addEventListener('abort', () => reject(new CayError('cancelled', 'The recording was aborted')), {
      once: true,
    }),
  );
  aborted.catch(() => {});
  signal.addEventListener(
    'abort',
    () => {
      wake(wakers);
      if (held) inBackground(Promise.resolve(held[Symbol.asyncDispose]()), ignoreFailure);
    },
    { once: true },
  );
  const done = run()
    .catch((error: unknown) => {
      onError(error);
      return undefined;
    })
    .finally(() => ended.resolve(undefined));
  const announced = ended.promise.then(() => {
    finished = true;
    wake(waiters);
  });
  inBackground(announced, onError);

  return {
    get pid() {
      return pid;
    },
    get end() {
      return log?.end ?? 0;
    },
    get keptFrom() {
      return log?.keptFrom ?? 0;
    },
    readers,
    changed: () => (finished ? Promise.resolve() : new Promise((resolve) => waiters.add(resolve))),
    taken: () => wake(wakers),
    nudge() {
      nudged = true;
      wake(wakers);
    },
    hurry() {
      hurried++;
      wake(wakers);
      return { [Symbol.dispose]: () => void hurried-- };
    },
    ended: ended.promise,
    done,
  };
}

/** Rejects as soon as `aborted` does. */
async function attach(
  { command, connect, sandboxes, signal }: RecorderOptions,
  offset: number,
  aborted: Promise<never>,
): Promise<Attached> {
  const { sandbox, id } = command;
  const guest = await Promise.race([connect(sandbox as SandboxId), aborted]);
  if (isOwnCommand(await sandboxes.get(sandbox), id)) {
    const info = await commandInGuest(guest, id, { signal });
    if (info && !isSame(command, info)) return { kind: 'lost', end: RESTARTED_END };
  }
  return { kind: 'handle', handle: await guest.attach(id, { offset, signal }) };
}

function behind(readers: Iterable<Reader>, end: number): number {
  let least = end;
  for (const { position } of readers) least = Math.min(least, position);
  return end - least;
}

/** Retries a write while the disk is full. The guest keeps the output until there is room again. */
async function untilRoom<T>(
  { onError, signal }: Pick<RecorderOptions, 'onError' | 'signal'>,
  write: () => Promise<T>,
): Promise<T | undefined> {
  for (let reported = false; !signal.aborted;) {
    try {
      return await write();
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      if (!reported) onError(error);
      reported = true;
      await sleep(DISK_FULL_RETRY_MS, undefined, { signal }).catch(() => {});
    }
  }
  return undefined;
}
