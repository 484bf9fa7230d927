/** Waits until the start command of a template is ready. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError } from '@cay/sdk/protocol';
import { loginShell, runIn, type RunIn } from './run-in.ts';

const FIRST_MS = 50;
const SLOWEST_MS = 1000;

/** Runs the command line until it succeeds. Rejects `deadline_exceeded`. */
export async function awaitReady(run: RunIn, line: string, timeoutMs: number): Promise<void> {
  const deadline = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([run.signal, deadline]);
  try {
    for (let waitMs = FIRST_MS; ; waitMs = Math.min(waitMs * 1.5, SLOWEST_MS)) {
      if ((await runIn({ ...run, signal }, loginShell(line))).exitCode === 0) return;
      await sleep(waitMs, undefined, { signal });
    }
  } catch (error) {
    if (run.signal.aborted || !deadline.aborted) throw error;
    throw new CayError(
      'deadline_exceeded',
      `"${line.slice(0, 500)}" has not succeeded for ${Math.round(timeoutMs / 1000)} s`,
      {
        details: { command: line.slice(0, 4096) },
      },
    );
  }
}
