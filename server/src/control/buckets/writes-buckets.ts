import type { Waker } from '../pausing/wake.ts';
import type { SandboxDestroyer } from '../sandboxes/destroy-sandbox.ts';
import type { Syncing } from './syncing.ts';

/** A destroyer that writes what the sandbox changed to its buckets first. */
export function writesBuckets(
  destroyer: SandboxDestroyer,
  syncing: Pick<Syncing, 'beforeEnd'>,
  waker: Pick<Waker, 'ensureAwake'>,
): SandboxDestroyer {
  return {
    async destroy(row, ...rest) {
      const written = row.state === 'destroying' ? row : await syncing.beforeEnd(row, waker.ensureAwake);
      await destroyer.destroy(written, ...rest);
    },
  };
}
