/**
 * The verbs of `Snapshotting`. A pod's root filesystem cannot be written, so that its files are those of a
 * few directories: the guest packs them, and the server keeps them on its disk.
 */
import type { SandboxId, SnapshotId } from '@cay/sdk/protocol';
import { KeyedQueue } from '../../../lib/keyed-queue.ts';
import type { Snapshotting } from '../../backend.ts';
import { requireIds, requireSnapshotId, requireSpec, requireWanted } from '../../support/check.ts';
import { noMemory, requireNoDependents } from '../../support/snapshot-errors.ts';
import { treeIndexes } from '../../support/tree-indexes.ts';
import { ANNOTATIONS } from '../client/names.ts';
import { readFrom, tarFrom } from './archive-files.ts';
import { clonePod } from './clone-pod.ts';
import { rollbackPod } from './rollback-pod.ts';
import { exportArchive, importArchive } from './snapshot-archives.ts';
import { factsOf, takeSnapshot } from './take-snapshot.ts';
import type { TravelContext } from './travel-context.ts';

export function podSnapshots(context: TravelContext): Snapshotting {
  const { changes, store, workloads } = context;
  const queue = new KeyedQueue<SnapshotId>();
  const indexes = treeIndexes({
    require: (snapshot) => store.require(snapshot),
    open: (snapshot, { signal }) => wanted(store.tree(snapshot), signal),
  });

  async function sandboxesOf(snapshot: SnapshotId): Promise<SandboxId[]> {
    const found = await workloads.list();
    return found.flatMap(({ id, workload }) =>
      workload.metadata.annotations?.[ANNOTATIONS.parent] === snapshot ? [id] : [],
    );
  }

  return {
    async snapshot(id, snapshot, { memory = false, ...scope } = {}) {
      requireIds(id, snapshot);
      if (memory) throw noMemory(`take snapshot "${snapshot}" of sandbox "${id}"`, 'Kubernetes');
      return queue.run(snapshot, () => takeSnapshot(context, id, snapshot, scope));
    },

    snapshots: async () => (await store.list()).map(factsOf),

    async removeSnapshot(snapshot) {
      requireSnapshotId(snapshot);
      await queue.run(snapshot, async () => {
        if (!(await store.find(snapshot))) return;
        requireNoDependents(snapshot, await sandboxesOf(snapshot));
        indexes.forget(snapshot);
        await store.remove(snapshot);
      });
    },

    async clone(id, spec, snapshot, { memory = false, ...options } = {}) {
      requireIds(id, snapshot);
      requireSpec(spec);
      if (memory) {
        await store.require(snapshot);
        throw noMemory(`make sandbox "${id}" of snapshot "${snapshot}"`, 'Kubernetes');
      }
      return changes.changing(id, () => clonePod(context, id, spec, snapshot, options));
    },

    async rollback(id, snapshot, { memory = false, ...scope } = {}) {
      requireIds(id, snapshot);
      if (memory) throw noMemory(`roll sandbox "${id}" back`, 'Kubernetes');
      return changes.changing(id, () => rollbackPod(context, id, snapshot, scope));
    },

    changes: indexes.changes,

    snapshotFiles: (snapshot) => ({
      async *read(path, { signal } = {}) {
        requireSnapshotId(snapshot);
        await store.require(snapshot);
        yield* readFrom(() => wanted(store.tree(snapshot), signal), path);
      },
      async *tar(paths, { signal } = {}) {
        requireSnapshotId(snapshot);
        await store.require(snapshot);
        yield* tarFrom(() => wanted(store.tree(snapshot), signal), paths);
      },
    }),

    async *exportSnapshot(snapshot, options = {}) {
      requireSnapshotId(snapshot);
      yield* exportArchive(context, snapshot, options);
    },

    async importSnapshot(snapshot, archive, options = {}) {
      requireSnapshotId(snapshot);
      return queue.run(snapshot, () => importArchive(context, snapshot, archive, options));
    },
  };
}

async function* wanted(
  tree: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncIterable<Uint8Array> {
  for await (const part of tree) {
    requireWanted(signal);
    yield part;
  }
}
