export interface LogThrottle {
  /**
   * Counts a happening. True if it is one of the first of its name for a while; at the first, what was held
   * back before is in `held`.
   */
  happens(name: string): { first: boolean; held: number };
}

export interface LogThrottleOptions {
  everyMs: number;
  /** How many of each name are let through within that time. Default 1. */
  through?: number;
  /** How many names are known at a time; those beyond share one. Default 1000. */
  most?: number;
  now?(): number;
}

/**
 * Lets through a few of each name within `everyMs` and counts the rest, for what strangers can make happen as
 * often as they like.
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
      // A clock that was set back must not silence anything for long.
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
