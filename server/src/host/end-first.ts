import { writeFile } from 'node:fs/promises';

/**
 * Above what sandboxes have, and far above the server: a program that takes too much memory is the first to
 * go.
 */
const SCORE = 900;

/**
 * Has the kernel end this program before the server when memory runs out. It inherits the server's own score
 * otherwise.
 */
export function endFirst(pid: number | undefined): void {
  // One that has ended already needs it no more, and where it is not allowed it is as before.
  if (pid !== undefined) writeFile(`/proc/${pid}/oom_score_adj`, String(SCORE)).catch(() => {});
}
