/**
 * Ends sandboxes whose time is up.
 *
 * The times are in the records, by the wall clock, so they outlive the server. The timer sleeps to
 * the next one but never longer than a few seconds: a clock that was set, or a machine that was
 * suspended, is noticed soon.
 */
import type { SandboxRow } from '../../records/sandboxes.ts';

export interface ExpiryOptions {
  next(): number | undefined;
  due(): SandboxRow[];
  expire(row: SandboxRow): Promise<void>;
  /** The clock was set back: no sandbox may get more time by that than it was given. */
  shorten(): void;
  now(): number;
  onError(error: unknown): void;
}

export interface Expiry {
  /** Some sandbox's time was set. */
  changed(): void;
  stop(): void;
}

const LONGEST_SLEEP_MS = 5_000;

export function startExpiry(options: ExpiryOptions): Expiry {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const inProgress = new Set<string>();
  let seenMs = Number.POSITIVE_INFINITY;

  function tick(): void {
    timer = undefined;
    for (const row of attempt(options.due) ?? []) {
      if (inProgress.has(row.id)) continue;
      inProgress.add(row.id);
      options
        .expire(row)
        .catch(options.onError)
        .finally(() => inProgress.delete(row.id));
    }
    sleep();
  }

  /** Called by a timer, where nobody else would catch it. */
  function attempt<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      options.onError(error);
      return undefined;
    }
  }

  function sleep(): void {
    if (stopped) return;
    clearTimeout(timer);
    if (options.now() < seenMs) attempt(options.shorten);
    seenMs = options.now();
    // Records that cannot be read now are read again.
    const next =
      attempt(() => options.next() ?? Number.POSITIVE_INFINITY) ?? options.now() + LONGEST_SLEEP_MS;
    if (next === Number.POSITIVE_INFINITY) return;
    // At least a moment, so that one that cannot be ended is not tried in a tight loop.
    timer = setTimeout(tick, Math.min(Math.max(next - options.now(), 50), LONGEST_SLEEP_MS));
    timer.unref();
  }

  return {
    changed: sleep,
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
