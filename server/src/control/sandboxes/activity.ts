/**
 * Which sandboxes are in use at the moment, and when each was used last.
 *
 * Every call that reaches a sandbox is counted here from its first step to its last. So a turn knows which
 * commands to wait for, the idle policy which sandboxes are unused, and a pause that no call is on its way
 * in. Each sandbox has a gate. While it is closed new calls wait; calls that are inside go on.
 */
import type { Clock } from '../../lib/clock.ts';
import { inBackground } from '../../lib/in-background.ts';

export const USES = [
  /** A command that a client waits for. */
  'command',
  /** A client that reads, watches or is connected to a port. */
  'client',
  'preview',
  /** A short call to the guest. */
  'call',
] as const;
export type Use = (typeof USES)[number];

export interface ActivityOptions {
  /** Records when sandboxes were used last. */
  save(used: ReadonlyMap<string, number>): Promise<void>;
  clock: Clock;
  onError(error: unknown): void;
}

export interface Activity {
  /** Counts one use until it is disposed of; undefined while the gate is closed. */
  enter(id: string, use: Use): Disposable | undefined;
  /** Counts a use that is part of one that was let in, or that needs no guest. Ignores the gate. */
  hold(id: string, use: Use): Disposable;
  /** Resolves when the gate is open. */
  gateOpen(id: string): Promise<void>;
  /** Keeps new calls out while the task runs. */
  withGateClosed<T>(id: string, task: () => Promise<T>): Promise<T>;
  /** How often the gate was closed. A guest from before must be connected again. */
  epoch(id: string): number;
  count(id: string, ...uses: Use[]): number;
  /**
   * Resolves whether there are no such uses, at the latest after `waitMs`. Rejects if the signal is aborted.
   */
  waitUntilNone(id: string, uses: readonly Use[], waitMs: number, signal?: AbortSignal): Promise<boolean>;
  /** It is used now. Recorded within a few seconds. */
  touch(id: string): void;
  /** It is used now; the caller records that. */
  markUsed(id: string): void;
  /** By the time of day; undefined if it was not used since the server started. */
  usedAtMs(id: string): number | undefined;
  /** The same by the steady clock. */
  steadyUsedAtMs(id: string): number | undefined;
  /** Counts as used for so long; 0 ends the lease. */
  lease(id: string, forMs: number): void;
  /** By the steady clock; undefined if no lease was given since the server started. */
  steadyLeaseUntilMs(id: string): number | undefined;
  forget(id: string): void;
  /** Records the last uses that are not recorded yet. */
  close(): Promise<void>;
}

interface Place {
  counts: Record<Use, number>;
  epoch: number;
  closed: { promise: Promise<void>; resolve(): void; holders: number } | undefined;
  /** Called at the end of each use. */
  waiting: Set<() => void>;
}

const SAVE_EVERY_MS = 3_000;

export function openActivity({ save, clock, onError }: ActivityOptions): Activity {
  const places = new Map<string, Place>();
  const used = new Map<string, { atMs: number; steadyMs: number }>();
  const leases = new Map<string, number>();
  let unsaved = new Map<string, number>();
  let timer: NodeJS.Timeout | undefined;
  let saved: Promise<void> = Promise.resolve();

  function place(id: string): Place {
    let known = places.get(id);
    if (!known) {
      known = {
        counts: { command: 0, client: 0, preview: 0, call: 0 },
        epoch: 0,
        closed: undefined,
        waiting: new Set(),
      };
      places.set(id, known);
    }
    return known;
  }

  /** Resolves when all uses until now are recorded. */
  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    if (unsaved.size === 0) return saved;
    const saving = unsaved;
    unsaved = new Map();
    // One after the other. A use that could not be saved is saved with the next one; until then the sandbox
    // counts as idle from a little earlier.
    saved = saved.then(() => save(saving)).catch(onError);
    return saved;
  }

  function begin(at: Place, id: string, use: Use): Disposable {
    at.counts[use]++;
    activity.touch(id);
    let over = false;
    return {
      [Symbol.dispose]() {
        if (over) return;
        over = true;
        at.counts[use]--;
        if (places.get(id) === at) activity.touch(id);
        for (const check of at.waiting) check();
      },
    };
  }

  const activity: Activity = {
    enter(id, use) {
      const at = place(id);
      return at.closed ? undefined : begin(at, id, use);
    },
    hold: (id, use) => begin(place(id), id, use),
    gateOpen: (id) => places.get(id)?.closed?.promise ?? Promise.resolve(),
    async withGateClosed(id, task) {
      const at = place(id);
      at.closed ??= { ...Promise.withResolvers<void>(), holders: 0 };
      at.closed.holders++;
      at.epoch++;
      try {
        return await task();
      } finally {
        const gate = at.closed;
        if (--gate.holders === 0) {
          at.closed = undefined;
          gate.resolve();
        }
      }
    },
    epoch: (id) => places.get(id)?.epoch ?? 0,
    count: (id, ...uses) => uses.reduce((sum, use) => sum + (places.get(id)?.counts[use] ?? 0), 0),
    waitUntilNone(id, uses, waitMs, signal) {
      const none = () => activity.count(id, ...uses) === 0;
      if (none() || waitMs <= 0) return Promise.resolve(none());
      const { waiting } = place(id);
      return new Promise((resolve, reject) => {
        const settle = () => {
          clearTimeout(deadline);
          waiting.delete(check);
          signal?.removeEventListener('abort', settle);
          if (signal?.aborted) reject(signal.reason as Error);
          else resolve(none());
        };
        const check = () => none() && settle();
        const deadline = setTimeout(settle, waitMs);
        waiting.add(check);
        signal?.addEventListener('abort', settle);
        if (signal?.aborted) settle();
      });
    },
    touch(id) {
      activity.markUsed(id);
      unsaved.set(id, clock.now());
      timer ??= setTimeout(() => inBackground(flush(), onError), SAVE_EVERY_MS).unref();
    },
    markUsed: (id) => void used.set(id, { atMs: clock.now(), steadyMs: clock.steady() }),
    usedAtMs: (id) => used.get(id)?.atMs,
    steadyUsedAtMs: (id) => used.get(id)?.steadyMs,
    lease: (id, forMs) => void leases.set(id, clock.steady() + forMs),
    steadyLeaseUntilMs: (id) => leases.get(id),
    forget(id) {
      places.delete(id);
      used.delete(id);
      leases.delete(id);
      unsaved.delete(id);
    },
    close: flush,
  };
  return activity;
}
