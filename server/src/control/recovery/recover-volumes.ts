/**
 * Finishes what an earlier server had begun with volumes: one that was being made never was, one that was
 * being removed is removed. A volume that no record knows is left alone: it may hold data.
 */
import { isAway } from '../../backends/backend.ts';
import type { Core } from '../core.ts';
import { volumesOn } from '../volumes/keeps-volumes.ts';

/** Where several servers share the records, another one may work on it. */
const ABANDONED_MS = 60 * 60 * 1000;

export async function recoverVolumes({
  backend,
  clock,
  onError,
  records,
}: Pick<Core, 'backend' | 'clock' | 'onError' | 'records'>): Promise<void> {
  for (const { id, state, platform, project, createdAtMs } of await records.volumes.list()) {
    if (state === 'kept') continue;
    if (records.driver === 'postgres' && clock.now() - createdAtMs < ABANDONED_MS) continue;
    try {
      await (await volumesOn(backend, platform)).removeVolume(id, { project });
      await records.volumes.delete(id);
    } catch (error) {
      if (!isAway(error)) onError(error);
    }
  }
}
