import type { Readable, Writable } from 'node:stream';

/**
 * Reads no more of an answer for a while: until the program has taken what `full` holds for it, if that is
 * given, and then for `waitMs`.
 */
export function pauseUntil(answer: Readable, waitMs: number, full: Writable | undefined): void {
  if (!full && waitMs <= 0) return;
  answer.pause();
  const resume = () =>
    void (waitMs > 0 ? setTimeout(() => answer.resume(), waitMs).unref() : answer.resume());
  if (full) full.once('drain', resume);
  else resume();
}
