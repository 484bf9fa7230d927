import { isCayError } from '@cay/sdk/protocol';
import { logThrottle } from '../../lib/log-throttle.ts';
import type { Core } from '../core.ts';
import { requireSnapshots } from './require-snapshots.ts';

/** A project's snapshots are measured again at most so often. */
const MEASURE_EVERY_MS = 10_000;

/**
 * Admits bytes of snapshots. Before the quota refuses, the project's snapshots are measured again: files that
 * they shared with removed ones may be gone since. Resolves as `admit` does.
 */
export type AdmitSnapshotBytes = <T>(project: string, admit: () => Promise<T>) => Promise<T>;

export function snapshotQuota({
  backend,
  clock,
  records,
}: Pick<Core, 'backend' | 'clock' | 'records'>): AdmitSnapshotBytes {
  const measurements = logThrottle({ everyMs: MEASURE_EVERY_MS, now: clock.steady });

  async function measure(project: string): Promise<void> {
    const travel = requireSnapshots(backend);
    for (const { id, here, fileBytes } of await records.snapshots.list({ project })) {
      if (!here || !fileBytes) continue;
      const measured = await travel.fileBytes?.(id);
      if (measured === undefined || measured >= fileBytes) continue;
      await records.transaction(async (tx) => {
        if ((await tx.snapshots.get(id))?.fileBytes === fileBytes)
          await tx.snapshots.update(id, { fileBytes: measured });
      });
    }
  }

  return async (project, admit) => {
    try {
      return await admit();
    } catch (error) {
      if (!isCayError(error, 'resource_exhausted') || error.details['quota'] !== 'snapshotBytes') throw error;
      if (!measurements.happens(project).first) throw error;
      await measure(project);
      return admit();
    }
  };
}
