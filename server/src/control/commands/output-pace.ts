import { setTimeout as sleep } from 'node:timers/promises';

/** Rate limit for the output of one command, so that one command cannot keep the server busy. */
const BYTES_PER_SECOND = 32 * 1024 * 1024;

/** The returned function takes note of that many bytes, and resolves when more may follow. Never rejects. */
export function outputPace(signal: AbortSignal): (bytes: number) => Promise<void> {
  let windowFrom = performance.now();
  let inWindow = 0;
  return async (bytes) => {
    const elapsed = performance.now() - windowFrom;
    if (elapsed > 1000) {
      windowFrom = performance.now();
      inWindow = 0;
    }
    inWindow += bytes;
    if (inWindow > BYTES_PER_SECOND)
      await sleep(Math.max(1, 1000 - elapsed), undefined, { signal }).catch(() => {});
  };
}
