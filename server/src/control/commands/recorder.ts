/**
 * Records one command: its output into a log on disk, up to its end. It goes on where the log stops, whatever
 * happened in between: the connection, the sandbox's pauses, the server itself. The guest keeps output
 * meanwhile; what it had to drop becomes a gap.
 */
import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError, type CommandEnd, type SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import type { CommandHandle, OutputChunk, OutputGap } from '../../guest/guest.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import { openFrameLog, type FrameLog } from '../../lib/frame-log.ts';
import type { SandboxRecords } from '../../records/sandboxes.ts';
import { DISK_FULL_RETRY_MS } from '../capacity/retry-on-disk-full.ts';
import type { RecordedCommand } from './command-records.ts';
import { hasEnded, lostWith } from './lost-with.ts';
import { isOwnCommand, isSame } from './own-command.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface RecorderOptions {
  command: RecordedCommand;
  /** What it is read by at first, if somebody holds it from its first byte on. */
  handle?: CommandHandle | undefined;
  /** Nothing was recorded of it before. */
  fresh: boolean;
  directory: string;
  backend: Backend;
  sandboxes: SandboxRecords;
  now(): number;
  /** Ends the recording and leaves the command as it is. */
  signal: AbortSignal;
  onError(error: unknown): void;
}

/** A reader of a log that is being written. */
export interface Reader {
  /** Of the next byte that it wants. */
  position: number;
}

export interface Recorder {
  readonly pid: number;
  readonly end: number;
  readonly keptFrom: number;
  /** Those for whom a command that waits is made to wait. */
  readonly readers: Set<Reader>;
  /** Resolves when there is more to read, or the recording is over. */
  changed(): Promise<void>;
  /** A reader has taken some. */
  taken(): void;
  /** Looks at the sandbox again now. */
  nudge(): void;
  /** Does not wait for readers until it is disposed of: what is not taken now is lost. */
  hurry(): Disposable;
  /**
   * The end of the command, when all of its output can be read; `undefined` if the recording ended before.
   */
  readonly ended: Promise<CommandEnd | undefined>;
  /** The same, when the output is on the disk. */
  readonly done: Promise<CommandEnd | undefined>;
}

export const KINDS = { stdout: 1, stderr: 2, pty: 3 } as const;

/**
 * How much of a command's output is taken in a second: more is a flood, which must not become the server's.
 */
const BYTES_PER_SECOND = 32 * 1024 * 1024;
/** How far behind a reader may be before a command that waits for its readers is not read any further. */
const AHEAD = 4 * 1024 * 1024;
const ANEW = 'The sandbox was started anew before the command ended';
const SHORTEST_WAIT_MS = 25;
const LONGEST_WAIT_MS = 5000;

export function startRecorder({
  command,
  handle: first,
  fresh,
  directory,
  backend,
  sandboxes,
  now,
  signal,
  onError,
}: RecorderOptions): Recorder {
  const { sandbox, id } = command;
  let log: FrameLog | undefined;
  const waiters = new Set<() => void>();
  const wakers = new Set<() => void>();
  const readers = new Set<Reader>();
  const ended = Promise.withResolvers<CommandEnd | undefined>();
  let held = first;
  let pid = command.pid;
  let finished = false;
  let hurried = 0;
  const wake = (all: Set<() => void>) => {
    for (const resolve of all) resolve();
    all.clear();
  };

  async function run(): Promise<CommandEnd | undefined> {
    const opened = await untilRoom(async () => {
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
      const row = sandboxes.get(sandbox);
      if (!row) return undefined;
      if (hasEnded(row)) return lostWith(row);
      if (row.state === 'active') {
        const before = into.end;
        const end = await attached(into);
        if (end) return end;
        if (into.end > before) waitMs = SHORTEST_WAIT_MS;
      }
      await pause(waitMs);
    }
    return undefined;
  }

  /** Takes output as long as there is a connection. Resolves the end if it came. */
  async function attached(into: FrameLog): Promise<CommandEnd | undefined> {
    try {
      await using handle = held ?? (await hold(into.end));
      held = handle;
      pid = handle.pid;
      for await (const chunk of handle.output) await take(into, chunk);
      const end = await handle.ended;
      return end.kind === 'lost' ? undefined : end;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (isCayError(error, 'not_found') && sandboxes.get(sandbox)?.state === 'active')
        return {
          kind: 'lost',
          reason: error.message === ANEW ? ANEW : 'The sandbox does not know the command any more',
        };
      // Whatever else it is, it is looked at again.
      if (!(error instanceof CayError)) onError(error);
      return undefined;
    } finally {
      held = undefined;
    }
  }

  async function hold(offset: number): Promise<CommandHandle> {
    const guest = await Promise.race([backend.connect(sandbox as SandboxId), over]);
    if (isOwnCommand(sandboxes.get(sandbox), id)) {
      const info = (await guest.commands({ signal })).find((each) => each.id === id);
      if (info && !isSame(command, info)) throw new CayError('not_found', ANEW);
    }
    return guest.attach(id, { offset, signal });
  }

  async function take(into: FrameLog, chunk: OutputChunk | OutputGap): Promise<void> {
    const length = chunk.channel === 'gap' ? chunk.bytes : chunk.data.length;
    // What is there already is not repeated, and what is missing is said to be.
    const known = Math.min(Math.max(0, into.end - chunk.offset), length);
    const missing = Math.max(0, chunk.offset - into.end) + (chunk.channel === 'gap' ? length - known : 0);
    if (missing > 0) await untilRoom(() => into.skip(missing, now()));
    if (chunk.channel !== 'gap' && known < length)
      await untilRoom(() => into.append(KINDS[chunk.channel], chunk.data.subarray(known), now()));
    wake(waiters);
    await atPace(length);
    while (command.overflow === 'wait' && hurried === 0 && !signal.aborted && behind(into.end) > AHEAD)
      await new Promise<void>((resolve) => wakers.add(resolve));
  }

  function behind(end: number): number {
    let least = end;
    for (const { position } of readers) least = Math.min(least, position);
    return end - least;
  }

  let windowFrom = performance.now();
  let inWindow = 0;
  async function atPace(bytes: number): Promise<void> {
    const elapsed = performance.now() - windowFrom;
    if (elapsed > 1000) {
      windowFrom = performance.now();
      inWindow = 0;
    }
    inWindow += bytes;
    if (inWindow > BYTES_PER_SECOND)
      await sleep(Math.max(1, 1000 - elapsed), undefined, { signal }).catch(() => {});
  }

  /** On a full disk nothing is taken from the guest, which keeps it, until there is room again. */
  async function untilRoom<T>(write: () => Promise<T>): Promise<T | undefined> {
    for (let told = false; !signal.aborted;) {
      try {
        return await write();
      } catch (error) {
        if (!isDiskFull(error)) throw error;
        if (!told) onError(error);
        told = true;
        await sleep(DISK_FULL_RETRY_MS, undefined, { signal }).catch(() => {});
      }
    }
    return undefined;
  }

  async function pause(ms: number): Promise<void> {
    if (signal.aborted) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      wakers.add(resolve);
      timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
  }

  /** Rejects when the recording is given up: a sandbox that does not answer is not waited for then. */
  const over = new Promise<never>((_, reject) =>
    signal.addEventListener('abort', () => reject(new CayError('cancelled', 'The recording was given up')), {
      once: true,
    }),
  );
  over.catch(() => {});
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
  const told = ended.promise.then(() => {
    finished = true;
    wake(waiters);
  });
  inBackground(told, onError);

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
    nudge: () => wake(wakers),
    hurry() {
      hurried++;
      wake(wakers);
      return { [Symbol.dispose]: () => void hurried-- };
    },
    ended: ended.promise,
    done,
  };
}
