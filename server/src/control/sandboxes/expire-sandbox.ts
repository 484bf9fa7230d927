import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Syncing } from '../buckets/syncing.ts';
import type { Core } from '../core.ts';
import type { Pausing } from '../pausing/pausing.ts';
import type { Waker } from '../pausing/wake.ts';
import { REMOVE_RETRY_MS, type SandboxDestroyer } from './destroy-sandbox.ts';
import type { Expire } from './expiry.ts';
import { isLeasedElsewhere } from './operations.ts';
import type { SandboxStopper } from './stop-sandbox.ts';

/** Does what `onTimeout` asks for: pause, archive, stop or destroy. What fails is tried again later. */
export function expireSandbox({
  clock,
  operations,
  records,
  destroyer,
  stopper,
  pausing,
  syncing,
  waker,
}: Pick<Core, 'clock' | 'operations' | 'records'> & {
  destroyer: SandboxDestroyer;
  stopper: SandboxStopper;
  pausing: Pick<Pausing, 'pauseOnTimeout'>;
  syncing: Syncing;
  waker: Pick<Waker, 'ensureAwake' | 'prepareStop'>;
}): Expire {
  async function end(row: SandboxRow): Promise<void> {
    // A sandbox in state `destroying` has a time only if its removal has failed.
    if (row.state === 'destroying') await destroyer.destroy(row, undefined, 'recovery');
    else if (row.onTimeout === 'destroy')
      await destroyer.destroy(await syncing.beforeEnd(row, waker.ensureAwake), undefined, 'timeout');
    else if (row.onTimeout === 'stop' || !(await pausing.pauseOnTimeout(row))) {
      const written = await syncing.beforeEnd(row, waker.ensureAwake);
      await syncing.afterStop(
        await stopper.stop(await waker.prepareStop(written), undefined, { cause: 'timeout' }),
      );
    }
  }

  return async ({ id }) => {
    try {
      await operations.enqueue(id, async () => {
        // It may have got more time, or have ended, since it was listed.
        const row = await records.sandboxes.get(id);
        if (row && row.expiresAtMs !== null && row.expiresAtMs <= clock.now()) await end(row);
      });
    } catch (error) {
      if (isLeasedElsewhere(error)) return;
      await records.transaction(async (tx) => {
        const current = await tx.sandboxes.get(id);
        if (current?.expiresAtMs != null && current.state !== 'destroying')
          await tx.sandboxes.update(id, { expiresAtMs: clock.now() + REMOVE_RETRY_MS });
      });
      throw error;
    }
  };
}
