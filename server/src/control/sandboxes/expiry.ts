/**
 * Calls a handler for each sandbox whose timeout has passed.
 *
 * The times are in the records, by the wall clock, so they outlive the server. The timer sleeps until the
 * next one but never longer than a few seconds: a clock that was set, or a machine that was suspended, is
 * noticed soon.
 */
import { inBackground } from '../../lib/in-background.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';

export interface ExpiryOptions {
  next(): Promise<number | undefined>;
  due(): Promise<SandboxRow[]>;
  /** The clock was set back: no sandbox may get more time by that than its timeout. */
  shorten(): Promise<void>;
  now(): number;
  onError(error: unknown): void;
}

/** The row is as it was when it was listed: the handler reads it again, in the sandbox's queue. */
export type Expire = (row: SandboxRow) => Promise<void>;

export interface Expiry {
  /** A sandbox's time was recorded. */
  changed(): void;
  /** Nothing expires before this. */
  start(expire: Expire): void;
  /** Resolves when the records are not read any more. */
  stop(): Promise<void>;
}

const LONGEST_SLEEP_MS = 5_000;
/** A sandbox that cannot be ended is not tried in a tight loop. */
const SHORTEST_SLEEP_MS = 50;

export function openExpiry({ next, due, shorten, now, onError }: ExpiryOptions): Expiry {
  let timer: NodeJS.Timeout | undefined;
  let expire: Expire | undefined;
  const inProgress = new Set<string>();
  let seenMs = Number.POSITIVE_INFINITY;
  /** The reading of the next time, one at a time; with `again`, a time was recorded since it began. */
  let planning: Promise<void> | undefined;
  let again = false;
  /** The reading of those that are due. */
  let ticking: Promise<void> | undefined;

  async function tick(): Promise<void> {
    for (const row of (await attempt(due)) ?? []) {
      if (!expire || inProgress.has(row.id)) continue;
      inProgress.add(row.id);
      const expired = expire(row).finally(() => inProgress.delete(row.id));
      inBackground(expired, onError);
    }
  }

  /** Runs in a timer, so nothing above would catch an error. */
  async function attempt<T>(read: () => Promise<T>): Promise<T | undefined> {
    try {
      return await read();
    } catch (error) {
      onError(error);
      return undefined;
    }
  }

  async function plan(): Promise<void> {
    do {
      again = false;
      clearTimeout(timer);
      if (now() < seenMs) await attempt(shorten);
      seenMs = now();
      // If the records cannot be read now, they are read again at the end of the longest sleep.
      const nextMs =
        (await attempt(async () => (await next()) ?? Number.POSITIVE_INFINITY)) ?? now() + LONGEST_SLEEP_MS;
      if (!expire || nextMs === Number.POSITIVE_INFINITY) continue;
      const sleepMs = Math.min(Math.max(nextMs - now(), SHORTEST_SLEEP_MS), LONGEST_SLEEP_MS);
      timer = setTimeout(() => {
        ticking = tick();
        inBackground(ticking.then(sleep), onError);
      }, sleepMs).unref();
    } while (again && expire);
  }

  function sleep(): void {
    if (!expire) return;
    if (planning) again = true;
    else planning = plan().finally(() => (planning = undefined));
  }

  return {
    changed: sleep,
    start(handler) {
      expire = handler;
      sleep();
    },
    async stop() {
      expire = undefined;
      await planning;
      clearTimeout(timer);
      await ticking;
    },
  };
}
