/**
 * Calls a handler for each sandbox whose timeout has passed.
 *
 * The times are in the records, by the wall clock, so they outlive the server. The timer sleeps until the
 * next one but never longer than a few seconds: a clock that was set, or a machine that was suspended, is
 * noticed soon.
 */
import type { SandboxRow } from '../../records/sandboxes.ts';

export interface ExpiryOptions {
  next(): number | undefined;
  due(): SandboxRow[];
  /** The clock was set back: no sandbox may get more time by that than its timeout. */
  shorten(): void;
  now(): number;
  onError(error: unknown): void;
}

export type Expire = (row: SandboxRow) => Promise<void>;

export interface Expiry {
  /** A sandbox's time was recorded. */
  changed(): void;
  /** Nothing expires before this. */
  start(expire: Expire): void;
  stop(): void;
}

const LONGEST_SLEEP_MS = 5_000;
/** A sandbox that cannot be ended is not tried in a tight loop. */
const SHORTEST_SLEEP_MS = 50;

export function openExpiry({ next, due, shorten, now, onError }: ExpiryOptions): Expiry {
  let timer: NodeJS.Timeout | undefined;
  let expire: Expire | undefined;
  const inProgress = new Set<string>();
  let seenMs = Number.POSITIVE_INFINITY;

  function tick(): void {
    timer = undefined;
    for (const row of attempt(due) ?? []) {
      if (inProgress.has(row.id)) continue;
      inProgress.add(row.id);
      expire?.(row)
        .catch(onError)
        .finally(() => inProgress.delete(row.id));
    }
    sleep();
  }

  /** Runs in a timer, so nothing above would catch an error. */
  function attempt<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      onError(error);
      return undefined;
    }
  }

  function sleep(): void {
    if (!expire) return;
    clearTimeout(timer);
    if (now() < seenMs) attempt(shorten);
    seenMs = now();
    // If the records cannot be read now, they are read again at the end of the longest sleep.
    const nextMs = attempt(() => next() ?? Number.POSITIVE_INFINITY) ?? now() + LONGEST_SLEEP_MS;
    if (nextMs === Number.POSITIVE_INFINITY) return;
    const sleepMs = Math.min(Math.max(nextMs - now(), SHORTEST_SLEEP_MS), LONGEST_SLEEP_MS);
    timer = setTimeout(tick, sleepMs).unref();
  }

  return {
    changed: sleep,
    start(handler) {
      expire = handler;
      sleep();
    },
    stop() {
      expire = undefined;
      clearTimeout(timer);
    },
  };
}
