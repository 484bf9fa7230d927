/** Removing snapshots, in whatever order they descend from one another. */
import type { SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { requireNoDependents } from '../support/snapshot-errors.ts';
import type { Engine } from './engine.ts';
import { undoSnapshot } from './undo-snapshot.ts';

export const REMOVE_SNAPSHOT_FAULTS = [
  'local.removeSnapshot.recorded',
  'local.removeSnapshot.reaping',
] as const;

export async function removeSnapshot(engine: Engine, id: SnapshotId): Promise<void> {
  await engine.snapshotQueue.run(id, async () => {
    const record = engine.snapshots.get(id);
    if (!record) return;
    // A tree that was replaced may depend on it for a moment.
    await engine.backgroundCleanup.settled();
    requireNoDependents(id, sandboxesOf(engine, id));
    const hold = engine.held.hold(id);
    try {
      if (record.state === 'kept') await engine.snapshots.save({ ...record, state: 'removing' });
      await faultPoint('local.removeSnapshot.recorded');
      if (record.memory) await engine.images.remove(record.memory.image);
    } finally {
      hold.release();
    }
  });
  // It is removed for callers. What a new tree depends on by now, or the disk does
  // not let go of, is for the sweep of every minute.
  await reapSnapshots(engine).catch(engine.onError);
}

function sandboxesOf({ records }: Engine, id: SnapshotId): string[] {
  return [...records.all.values()]
    .filter(({ parent, memory, next }) => [parent, memory?.snapshot, next?.parent].includes(id))
    .map((record) => record.id);
}

/**
 * Takes away what is left of snapshots that were removed. The tree of one that others descend from stays
 * until they are gone: callers cannot see it any more, and shared blocks take no further space.
 */
export async function reapSnapshots(engine: Engine): Promise<void> {
  for (let again = true; again;) {
    again = false;
    for (const record of reapable(engine, await engine.resources.trees.list())) {
      if (engine.held.has(record.id)) continue;
      await faultPoint('local.removeSnapshot.reaping');
      await undoSnapshot(engine, record);
      again = true;
    }
  }
}

export function reapable({ snapshots }: Engine, trees: { parent?: string }[]) {
  const removed = [...snapshots.all.values()].filter(({ state }) => state === 'removing');
  if (removed.length === 0) return [];
  const parents = new Set(trees.map(({ parent }) => parent));
  return removed.filter(({ tree }) => !parents.has(tree));
}
