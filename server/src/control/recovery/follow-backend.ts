import type { SandboxId } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import { inBackground } from '../../lib/in-background.ts';
import { retryOnDiskFull } from '../capacity/retry-on-disk-full.ts';
import type { Core } from '../core.ts';
import { isLeasedElsewhere } from '../sandboxes/operations.ts';
import type { Settler } from './settle-sandbox.ts';

/**
 * Records what the backend reports while the server runs: sandboxes that end or are removed by themselves.
 */
export async function followBackend(
  changes: AsyncIterable<Observation>,
  {
    backend,
    closing,
    onError,
    operations,
    records: { sandboxes },
    settler,
  }: Pick<Core, 'backend' | 'closing' | 'onError' | 'operations' | 'records'> & { settler: Settler },
): Promise<void> {
  const settle = (id: SandboxId) =>
    operations.enqueue(id, async () => {
      const row = closing.aborted ? undefined : await sandboxes.get(id);
      if (row?.state === 'active' || row?.state === 'paused')
        await settler.settle(row, await backend.observe(id));
    });
  for await (const { id, phase } of changes) {
    if (phase === 'ready' || phase === 'starting' || phase === 'hibernated') continue;
    // Other sandboxes do not wait for this one.
    inBackground(
      retryOnDiskFull(
        () => settle(id),
        (error) => {
          // The server that changes the sandbox records what becomes of it.
          if (!isLeasedElsewhere(error)) onError(error);
        },
      ),
      onError,
    );
  }
}
