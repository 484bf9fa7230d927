import { writeFile } from 'node:fs/promises';

/** Above the score of sandboxes, and far above that of the server. */
const SCORE = 900;

/**
 * Makes the kernel kill this program before the server when memory runs out. Without it the program inherits
 * the server's score.
 */
export function endFirst(pid: number | undefined): void {
  // It may have ended already, and without the right it keeps the server's score.
  if (pid !== undefined) writeFile(`/proc/${pid}/oom_score_adj`, String(SCORE)).catch(() => {});
}
