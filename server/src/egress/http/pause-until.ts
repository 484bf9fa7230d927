import type { Readable, Writable } from 'node:stream';

/** Reads no more of an answer until the program has taken what it was sent (`full`), and so long after that. */
export function pauseUntil(answer: Readable, waitMs: number, full: Writable | undefined): void {
  if (!full && waitMs <= 0) return;
  answer.pause();
  const resume = () =>
    void (waitMs > 0 ? setTimeout(() => answer.resume(), waitMs).unref() : answer.resume());
  if (full) full.once('drain', resume);
  else resume();
}
