/** A token bucket for each key: `perSecond` on average, `burst` at once. */
export interface RateLimitOptions {
  perSecond: number;
  burst: number;
}

export interface RateLimit {
  /** Takes one token, or `count`. Returns 0, or the milliseconds to wait if there are too few. */
  take(key: string, tokens?: number): number;
  /** Gives a token back. */
  giveBack(key: string): void;
}

interface Bucket {
  tokens: number;
  atMs: number;
}

/** Above this number of keys, full buckets are forgotten, at most once a second. */
const SWEEP_AT = 10_000;
const SWEEP_EVERY_MS = 1000;
/**
 * Above this number the oldest bucket is forgotten in any case, because anonymous clients can choose their
 * keys.
 */
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
