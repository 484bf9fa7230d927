/** How long the processor may be used at once before a limit holds it back. */
const PERIOD_MS = 100;

/**
 * Makes what a guest reads of its processor time a count that only grows, and never by more than the limit
 * allows: gVisor takes the time in which the limit holds its processes back for time that they have used.
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
