import { setTimeout as sleep } from 'node:timers/promises';

export interface PollOptions {
  timeoutMs: number;
  /** The pause between two attempts, by the number of attempts so far. */
  delayMs: number | ((attempts: number) => number);
  signal?: AbortSignal | undefined;
}

/**
 * Repeats `attempt` until it gives something other than `undefined`: at once, then after each delay. Resolves
 * `undefined` if the timeout passes first; an attempt that has started is always awaited. Rejects with what
 * an attempt throws, and with an `AbortError` if the signal is aborted between two attempts.
 */
export async function poll<T>(
  attempt: () => T | undefined | Promise<T | undefined>,
  { timeoutMs, delayMs, signal }: PollOptions,
): Promise<T | undefined> {
  const deadline = performance.now() + timeoutMs;
  for (let attempts = 1; ; attempts++) {
    const value = await attempt();
    if (value !== undefined || performance.now() >= deadline) return value;
    await sleep(typeof delayMs === 'number' ? delayMs : delayMs(attempts), undefined, { signal });
  }
}
