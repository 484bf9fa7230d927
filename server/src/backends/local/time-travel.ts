/** The verbs of `Snapshotting`: ids are checked first, and each verb runs in the queue of its sandbox. */
import type { Snapshotting } from '../backend.ts';
import { requireIds, requireSnapshotId } from '../support/check.ts';
import { exportSnapshot, importSnapshot } from './archive.ts';
import { clone } from './clone.ts';
import type { Engine } from './engine.ts';
import { removeSnapshot } from './remove-snapshot.ts';
import { rollback } from './rollback.ts';
import { takeSnapshot } from './snapshot.ts';
import { changesBetween, filesOf } from './snapshot-content.ts';
import { snapshotFactsOf } from './snapshot-record.ts';

export function timeTravel(engine: Engine): Snapshotting {
  const { queue, snapshots } = engine;

  return {
    async snapshot(id, snapshot, { memory = false, signal } = {}) {
      requireIds(id, snapshot);
      return queue.run(id, () => takeSnapshot(engine, id, snapshot, { memory, signal }));
    },

    snapshots: async () =>
      [...snapshots.all.values()].filter(({ state }) => state === 'kept').map(snapshotFactsOf),

    async removeSnapshot(snapshot) {
      requireSnapshotId(snapshot);
      await removeSnapshot(engine, snapshot);
    },

    async clone(id, spec, snapshot, { memory = false, start = false, signal, name } = {}) {
      requireIds(id, snapshot);
      return queue.run(id, () => clone(engine, id, { spec, snapshot, memory, start, signal, name }));
    },

    async rollback(id, snapshot, { memory = false, signal } = {}) {
      requireIds(id, snapshot);
      return queue.run(id, () => rollback(engine, id, { snapshot, memory, signal }));
    },

    async fileBytes(snapshot) {
      const source = snapshots.get(snapshot)?.source;
      // The tree may be gone.
      return source === undefined ? undefined : engine.resources.trees.written(source).catch(() => undefined);
    },

    changes: (from, to, options) => changesBetween(engine, from, to, options),
    snapshotFiles: (snapshot) => filesOf(engine, snapshot),
    exportSnapshot: (snapshot, options) => exportSnapshot(engine, snapshot, options),
    async importSnapshot(snapshot, archive, options) {
      requireSnapshotId(snapshot);
      return importSnapshot(engine, snapshot, archive, options);
    },
  };
}
