/** For so long processes may use more than their limit before they are throttled. */
const PERIOD_MS = 100;

/**
 * Turns what a guest reads of its processor time into a counter that only grows, by no more than the limit
 * allows: gVisor counts the time in which processes are throttled as time that they have used.
 */
export function cpuCounter(cpus: number | null): (readMs: number, atMs: number) => number {
  let count = 0;
  let last: { readMs: number; atMs: number } | undefined;
  return (readMs, atMs) => {
    const grownMs = Math.max(0, readMs - (last?.readMs ?? 0));
    const mostMs = last && cpus !== null ? cpus * (atMs - last.atMs + PERIOD_MS) : Infinity;
    count += Math.min(grownMs, mostMs);
    last = { readMs: Math.max(readMs, last?.readMs ?? 0), atMs };
    return Math.round(count);
  };
}
