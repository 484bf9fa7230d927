import { isCayError } from '@cay/sdk/protocol';
import { logThrottle } from '../../lib/log-throttle.ts';
import type { Core } from '../core.ts';
import { requireSnapshots } from './require-snapshots.ts';

/** A project's snapshots are measured again at most so often. */
const MEASURE_EVERY_MS = 10_000;

/**
 * Admits bytes of snapshots. Before the quota refuses, the project's snapshots are measured again: files that
 * they shared with removed ones may be gone since.
 */
export type AdmitSnapshotBytes = (
  project: string,
  bytes: number,
  admit: (bytes: number) => void,
) => Promise<void>;

export function snapshotQuota({
  backend,
  clock,
  records: { snapshots },
}: Pick<Core, 'backend' | 'clock' | 'records'>): AdmitSnapshotBytes {
  const measurements = logThrottle({ everyMs: MEASURE_EVERY_MS, now: clock.steady });

  async function measure(project: string): Promise<void> {
    const travel = requireSnapshots(backend);
    for (const { id, here, fileBytes } of snapshots.list({ project })) {
      if (!here || !fileBytes) continue;
      const measured = await travel.fileBytes?.(id);
      if (measured !== undefined && measured < fileBytes && snapshots.get(id)?.fileBytes === fileBytes)
        snapshots.update(id, { fileBytes: measured });
    }
  }

  return async (project, bytes, admit) => {
    try {
      admit(bytes);
    } catch (error) {
      if (!isCayError(error, 'resource_exhausted') || error.details['quota'] !== 'snapshotBytes') throw error;
      if (!measurements.happens(project).first) throw error;
      await measure(project);
      admit(bytes);
    }
  };
}
