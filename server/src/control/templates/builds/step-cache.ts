/**
 * Steps of builds that need not be run again: for each key a snapshot and the state after the step. Each
 * project has its own. The least recently used go when they are too many or too large, and whenever the quota
 * of snapshots has no room for a new one.
 */
import { isCayError, type Snapshot, type SnapshotId } from '@cay/sdk/protocol';
import type { Records } from '../../../records/records.ts';
import type { Control } from '../../control.ts';
import type { Principal } from '../../tenants/principal.ts';

export interface StepCache {
  find<State>(key: string): Promise<{ snapshot: SnapshotId; state: State } | undefined>;
  keep(key: string, snapshot: SnapshotId, state: unknown): Promise<void>;
  /**
   * Removes the least recently used until the rest fits, and with `least` at least so many. Resolves how
   * many.
   */
  trim(least?: number): Promise<number>;
}

export interface StepCacheOptions {
  control: Pick<Control, 'getSnapshot' | 'removeSnapshot'>;
  records: Records;
  principal: Principal;
  now(): number;
  maxSteps?: number;
  maxBytes?: number;
}

const MOST_STEPS = 500;
const MOST_BYTES = 20 * 1024 ** 3;

export function stepCache(options: StepCacheOptions): StepCache {
  const { control, records, principal, now, maxSteps = MOST_STEPS, maxBytes = MOST_BYTES } = options;
  const { project } = principal;
  const { buildSteps } = records;

  async function stillThere(snapshot: SnapshotId): Promise<Snapshot | undefined> {
    return control.getSnapshot(principal, snapshot).catch((error: unknown) => {
      if (isCayError(error, 'not_found')) return undefined;
      throw error;
    });
  }

  async function dropSnapshot(snapshot: SnapshotId): Promise<void> {
    try {
      await control.removeSnapshot(principal, snapshot);
    } catch (error) {
      // A template or a sandbox was made from it: it is theirs now.
      const isUsed = isCayError(error, 'failed_precondition') || isCayError(error, 'conflict');
      if (!isUsed && !isCayError(error, 'not_found')) throw error;
    }
  }

  return {
    async find<State>(key: string) {
      const row = await buildSteps.get(project, key);
      if (!row) return undefined;
      if (!(await stillThere(row.snapshot))) {
        await buildSteps.delete(project, key);
        return undefined;
      }
      await buildSteps.used(project, key, now());
      return { snapshot: row.snapshot, state: JSON.parse(row.state) as State };
    },
    async keep(key, snapshot, state) {
      const before = await buildSteps.get(project, key);
      const bytes = (await stillThere(snapshot))?.bytes ?? 0;
      await buildSteps.save({ project, key, snapshot, state: JSON.stringify(state), bytes, usedAtMs: now() });
      if (before && before.snapshot !== snapshot) await dropSnapshot(before.snapshot);
    },
    async trim(least = 0) {
      const rows = await buildSteps.list(project);
      let bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
      let count = rows.length;
      let dropped = 0;
      for (const row of rows) {
        if (count <= maxSteps && bytes <= maxBytes && dropped >= least) break;
        await dropSnapshot(row.snapshot);
        await buildSteps.delete(project, row.key);
        count--;
        dropped++;
        bytes -= row.bytes;
      }
      return dropped;
    },
  };
}
