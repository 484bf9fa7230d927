import { setTimeout as sleep } from 'node:timers/promises';

export interface RetryOptions {
  /** Whether another attempt may succeed after this failure. */
  isTransient(error: unknown): boolean;
  /** Called with every failure, transient or not. */
  onError(error: unknown): void;
  delayMs: number;
  /** The delay doubles up to this. Default: it stays the same. */
  maxDelayMs?: number;
  /** Waits before the first attempt. Default 0. */
  firstDelayMs?: number;
}

/**
 * Runs the work, and runs it again in the background while it fails with a transient error. Resolves after
 * the first attempt and never rejects. A pending retry does not keep the process alive.
 */
export async function retry(work: () => unknown, options: RetryOptions): Promise<void> {
  const { isTransient, onError, delayMs, maxDelayMs = delayMs, firstDelayMs = 0 } = options;
  const later = async (waitMs: number, nextMs: number): Promise<void> => {
    await sleep(waitMs, undefined, { ref: false });
    await attempt(nextMs);
  };
  const attempt = async (nextMs: number): Promise<void> => {
    try {
      await work();
    } catch (error) {
      onError(error);
      if (isTransient(error)) later(nextMs, Math.min(2 * nextMs, maxDelayMs)).catch(onError);
    }
  };
  if (firstDelayMs === 0) await attempt(delayMs);
  else later(firstDelayMs, delayMs).catch(onError);
}
