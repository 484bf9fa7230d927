/** A token bucket for each key: `perSecond` on average, `burst` at once. */
export interface RateLimitOptions {
  perSecond: number;
  burst: number;
}

export interface RateLimit {
  /** Takes one token, or so many; 0 if there were enough, else the milliseconds until there are. */
  take(key: string, tokens?: number): number;
  /** Undoes one that was taken. */
  giveBack(key: string): void;
}

interface Bucket {
  tokens: number;
  atMs: number;
}

/** Beyond this many keys those that are full again are forgotten, at most once a second. */
const SWEEP_AT = 10_000;
const SWEEP_EVERY_MS = 1000;
/** Beyond this many the oldest is forgotten, whatever it has left: keys may be of strangers' choice. */
const MOST = 100_000;

export function rateLimit(
  { perSecond, burst }: RateLimitOptions,
  now: () => number = () => performance.now(),
): RateLimit {
  const buckets = new Map<string, Bucket>();
  const refilled = (bucket: Bucket, atMs: number) =>
    Math.min(burst, bucket.tokens + ((atMs - bucket.atMs) * perSecond) / 1000);

  let sweptAtMs = Number.NEGATIVE_INFINITY;

  function sweep(atMs: number): void {
    if (buckets.size >= MOST) buckets.delete(buckets.keys().next().value!);
    if (atMs - sweptAtMs < SWEEP_EVERY_MS) return;
    sweptAtMs = atMs;
    for (const [key, bucket] of buckets) if (refilled(bucket, atMs) >= burst) buckets.delete(key);
  }

  return {
    take(key, tokens = 1) {
      const atMs = now();
      let bucket = buckets.get(key);
      if (!bucket) {
        if (buckets.size >= SWEEP_AT) sweep(atMs);
        buckets.set(key, (bucket = { tokens: burst, atMs }));
      }
      bucket.tokens = refilled(bucket, atMs);
      bucket.atMs = atMs;
      if (bucket.tokens < tokens) return ((tokens - bucket.tokens) / perSecond) * 1000;
      bucket.tokens -= tokens;
      return 0;
    },
    giveBack(key) {
      const bucket = buckets.get(key);
      if (bucket) bucket.tokens = Math.min(burst, bucket.tokens + 1);
    },
  };
}
