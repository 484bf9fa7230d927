import type { Writable } from 'node:stream';

/** Resolves when the reader has taken what was written, or is gone. Leaves no listener behind. */
export function drained(to: Writable): Promise<void> {
  if (to.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      to.off('drain', done).off('close', done);
      resolve();
    };
    to.on('drain', done).on('close', done);
  });
}
