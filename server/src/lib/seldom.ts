export interface Seldom {
  /** Counts a happening. True if it is the first of its name for a while, and then what was held back since is in `held`. */
  happens(name: string): { first: boolean; held: number };
}

/**
 * Lets through one of each name within `everyMs` and counts the rest, for what strangers can make happen as often as they like. At most
 * `most` names are known at a time; those beyond share one.
 */
export function seldom({ everyMs, most = 1000, now = Date.now }: { everyMs: number; most?: number; now?(): number }): Seldom {
  const known = new Map<string, { sinceMs: number; held: number }>();
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
        before.held++;
        return { first: false, held: before.held };
      }
      known.set(name, { sinceMs: atMs, held: 0 });
      return { first: true, held: before?.held ?? 0 };
    },
  };
}
