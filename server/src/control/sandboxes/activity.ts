/**
 * Who uses which sandbox at the moment, and when it was used last.
 *
 * Every call that reaches a sandbox is counted here from its first step to its last. So a turn knows which
 * commands it waits for, the idle policy what nobody uses, and a pause that nothing is on its way in. While
 * a gate is closed newcomers wait in front of it; what is inside goes on.
 */
import type { Clock } from '../../lib/clock.ts';

export const USES = [
  /** A command that somebody waits for. */
  'command',
  /** A client that reads, watches or is connected to a port. */
  'client',
  'preview',
  /** A short question to the guest. */
  'call',
] as const;
export type Use = (typeof USES)[number];

export interface ActivityOptions {
  /** Notes when sandboxes were used last. */
  save(used: ReadonlyMap<string, number>): void;
  clock: Clock;
  onError(error: unknown): void;
}

export interface Activity {
  /** Counts one use until it is disposed of; undefined while the gate is closed. */
  enter(id: string, use: Use): Disposable | undefined;
  /** Something of that kind that begins within a use that was let in. */
  within(id: string, use: Use): Disposable;
  /** When the gate is open; at once if it is. */
  opened(id: string): Promise<void>;
  /** Keeps newcomers out while the task runs. */
  closed<T>(id: string, task: () => Promise<T>): Promise<T>;
  /** How often the gate was closed: whoever holds a guest from before asks for it again. */
  epoch(id: string): number;
  count(id: string, ...uses: Use[]): number;
  /** Whether there are no such uses, now or within the time. */
  without(id: string, uses: readonly Use[], waitMs: number): Promise<boolean>;
  touch(id: string): void;
  /** It is used now, which is recorded elsewhere. */
  mark(id: string): void;
  /** By the time of day, since the server began; undefined if not since then. */
  usedAtMs(id: string): number | undefined;
  /** The same by the steady clock. */
  steadyUsedAtMs(id: string): number | undefined;
  /** It counts as used for so long, or no longer with 0. */
  lease(id: string, forMs: number): void;
  /** Until when, by the steady clock; undefined if no lease was given since the server began. */
  steadyLeaseUntilMs(id: string): number | undefined;
  forget(id: string): void;
  /** Saves what is not saved yet. */
  close(): void;
}

interface Place {
  counts: Record<Use, number>;
  epoch: number;
  closed: { promise: Promise<void>; resolve(): void; holders: number } | undefined;
  /** Called at every end of a use. */
  waiting: Set<() => void>;
}

const SAVE_EVERY_MS = 3_000;

export function openActivity({ save, clock, onError }: ActivityOptions): Activity {
  const places = new Map<string, Place>();
  const used = new Map<string, { atMs: number; steadyMs: number }>();
  const leases = new Map<string, number>();
  let unsaved = new Map<string, number>();
  let timer: NodeJS.Timeout | undefined;

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

  function flush(): void {
    clearTimeout(timer);
    timer = undefined;
    if (unsaved.size === 0) return;
    const saving = unsaved;
    unsaved = new Map();
    try {
      save(saving);
    } catch (error) {
      // The next use saves it again; until then the clock of idleness starts a little early.
      onError(error);
    }
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
        for (const look of at.waiting) look();
      },
    };
  }

  const activity: Activity = {
    enter(id, use) {
      const at = place(id);
      return at.closed ? undefined : begin(at, id, use);
    },
    within: (id, use) => begin(place(id), id, use),
    opened: (id) => places.get(id)?.closed?.promise ?? Promise.resolve(),
    async closed(id, task) {
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
    without(id, uses, waitMs) {
      const none = () => activity.count(id, ...uses) === 0;
      if (none() || waitMs <= 0) return Promise.resolve(none());
      const { waiting } = place(id);
      return new Promise((resolve) => {
        const settle = () => {
          clearTimeout(deadline);
          waiting.delete(look);
          resolve(none());
        };
        const look = () => none() && settle();
        const deadline = setTimeout(settle, waitMs);
        waiting.add(look);
      });
    },
    touch(id) {
      activity.mark(id);
      unsaved.set(id, clock.now());
      timer ??= setTimeout(flush, SAVE_EVERY_MS).unref();
    },
    mark: (id) => void used.set(id, { atMs: clock.now(), steadyMs: clock.steady() }),
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
