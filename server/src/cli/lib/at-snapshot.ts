import { isCayError } from '@cay/sdk/client';
import { withHint } from './failure.ts';

/**
 * Runs a task that names a snapshot of a sandbox which was found before. What is not found is then the
 * snapshot, and the hint says where those of the sandbox are listed.
 */
export async function atSnapshot<T>(sandbox: string, task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    if (!isCayError(error, 'not_found') || error.hint !== undefined) throw error;
    throw withHint(error, `"cay snapshot ls ${sandbox}" lists its snapshots`);
  }
}
