export interface LogThrottle {
  /**
   * Counts an event. True if it is one of the first of its name within the interval; `held` is how many were
   * suppressed before it.
   */
  happens(name: string): { first: boolean; held: number };
}

export interface LogThrottleOptions {
  everyMs: number;
  /** How many of each name pass within the interval. Default 1. */
  through?: number;
  /** How many names are tracked; further ones share one. Default 1000. */
  most?: number;
  now?(): number;
}

/**
 * Lets a few events of each name pass within `everyMs` and counts the rest, for events that anonymous clients
 * can trigger as often as they like.
 */
export function logThrottle({
  everyMs,
  through = 1,
  most = 1000,
  now = Date.now,
}: LogThrottleOptions): LogThrottle {
  const known = new Map<string, { sinceMs: number; seen: number; held: number }>();
  return {
    happens(name) {
      const atMs = now();
      if (!known.has(name) && known.size >= most) {
        for (const [other, { sinceMs }] of known) if (atMs - sinceMs >= everyMs) known.delete(other);
        if (known.size >= most) name = '';
      }
      const before = known.get(name);
      // A clock that was set back must not suppress events for long.
      if (before && atMs - before.sinceMs < everyMs && atMs >= before.sinceMs) {
        before.seen++;
        if (before.seen <= through) return { first: true, held: 0 };
        before.held++;
        return { first: false, held: before.held };
      }
      known.set(name, { sinceMs: atMs, seen: 1, held: 0 });
      return { first: true, held: before?.held ?? 0 };
    },
  };
}
