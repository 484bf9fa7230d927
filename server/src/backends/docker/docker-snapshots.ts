/** The verbs of `Snapshotting`: a snapshot is an image that the engine commits of a container. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import type { CallScope, CloneOptions, Observation, Snapshotting } from '../backend.ts';
import { requireIds, requireSnapshotId, requireSpec, requireWanted } from '../support/check.ts';
import type { ObservationFeed } from '../support/observation-feed.ts';
import { noMemory, requireNoDependents } from '../support/snapshot-errors.ts';
import { hashOf } from '../support/spec-hash.ts';
import { treeIndexes } from '../support/tree-indexes.ts';
import { LABELS } from './container-config.ts';
import { observationOf } from './container-state.ts';
import type { DockerContext } from './docker-context.ts';
import { rollbackContainer } from './rollback-container.ts';
import { exportArchive, importArchive } from './snapshot-archives.ts';
import { exportFiles, isLeftOut, readFileOf, tarPathsOf } from './snapshot-content.ts';
import type { SnapshotImages } from './snapshot-images.ts';
import type { SnapshotReaders } from './snapshot-readers.ts';
import type { ContainerStarter } from './start-container.ts';
import { takeSnapshot } from './take-snapshot.ts';

export interface DockerSnapshotsContext extends DockerContext {
  starter: ContainerStarter;
  snapshots: SnapshotImages;
  readers: SnapshotReaders;
  changes: ObservationFeed;
  /** Makes a sandbox run that exists. */
  ensure(id: SandboxId, spec: SandboxSpec, scope?: CallScope): Promise<Observation>;
}

export const CLONE_FAULTS = ['docker.clone.made'] as const;

export function dockerSnapshots(context: DockerSnapshotsContext): Snapshotting {
  const { changes, client, containers, installation, readers, snapshots, starter } = context;
  const queue = new KeyedQueue<SnapshotId>();
  const indexes = treeIndexes({
    require: (snapshot, scope) => snapshots.require(snapshot, scope),
    open: (snapshot, scope) =>
      readers.reading(snapshot, scope, (container) =>
        exportFiles(client, container, `compare snapshot "${snapshot}"`, scope),
      ),
    isLeftOut,
  });

  async function sandboxesOf(snapshot: SnapshotId): Promise<string[]> {
    const labels = [`${LABELS.installation}=${installation}`, `${LABELS.parent}=${snapshot}`];
    const found = (await client.json('GET', '/containers/json', {
      action: `look who depends on snapshot "${snapshot}"`,
      query: { all: true, filters: JSON.stringify({ label: labels }) },
    })) as { Labels: Record<string, string> }[];
    return [...new Set(found.map(({ Labels }) => Labels[LABELS.sandbox]!))];
  }

  async function clone(
    id: SandboxId,
    spec: SandboxSpec,
    snapshot: SnapshotId,
    { start = false, ...scope }: CloneOptions,
  ): Promise<Observation> {
    requireWanted(scope.signal);
    const there = await containers.find(id, scope);
    if (there) {
      const labels = there.inspect.Config.Labels ?? {};
      if (labels[LABELS.parent] !== snapshot || labels[LABELS.specHash] !== hashOf(spec))
        throw new CayError('already_exists', `Sandbox "${id}" exists already`);
      return start ? context.ensure(id, spec, scope) : observationOf(there.name, there.inspect);
    }
    // The snapshot is not removed before the container depends on it.
    const container = await queue.run(snapshot, async () => {
      const { image } = await snapshots.require(snapshot, scope);
      await context.volumes.requireAll(spec, scope);
      const name = { id, incarnation: 1, mark: 'stopping' as const };
      return starter.make(name, spec, { image, parent: snapshot }, scope);
    });
    await faultPoint('docker.clone.made');
    try {
      requireWanted(scope.signal);
      if (start) return await context.ensure(id, spec, scope);
      const found = await containers.look(id, container, scope);
      if (found) return observationOf(found.name, found.inspect);
      throw new CayError('conflict', `Cannot make sandbox "${id}": its container was removed`);
    } catch (error) {
      await containers.remove(id, container).catch(() => {});
      throw error;
    }
  }

  return {
    async snapshot(id, snapshot, { memory = false, ...scope } = {}) {
      requireIds(id, snapshot);
      return queue.run(snapshot, async () => {
        if (memory) throw noMemory(`take snapshot "${snapshot}" of sandbox "${id}"`, 'Docker');
        return takeSnapshot(context, id, snapshot, scope);
      });
    },

    snapshots: (scope) => snapshots.list(scope),

    async removeSnapshot(snapshot) {
      requireSnapshotId(snapshot);
      await queue.run(snapshot, async () => {
        requireNoDependents(snapshot, await sandboxesOf(snapshot));
        indexes.forget(snapshot);
        await readers.forget(snapshot);
        await snapshots.remove(snapshot);
      });
    },

    async clone(id, spec, snapshot, { memory = false, ...options } = {}) {
      requireIds(id, snapshot);
      requireSpec(spec);
      if (memory) {
        await snapshots.require(snapshot, options);
        throw noMemory(`make sandbox "${id}" of snapshot "${snapshot}"`, 'Docker');
      }
      return clone(id, spec, snapshot, options);
    },

    async rollback(id, snapshot, { memory = false, ...scope } = {}) {
      requireIds(id, snapshot);
      if (memory) throw noMemory(`roll sandbox "${id}" back`, 'Docker');
      return changes.changing(id, () => rollbackContainer(context, id, snapshot, scope));
    },

    changes: indexes.changes,

    snapshotFiles: (snapshot) => ({
      async *read(path, scope = {}) {
        requireSnapshotId(snapshot);
        yield* readers.reading(snapshot, scope, (container) => readFileOf(client, container, path, scope));
      },
      async *tar(paths, scope = {}) {
        requireSnapshotId(snapshot);
        yield* readers.reading(snapshot, scope, (container) => tarPathsOf(client, container, paths, scope));
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
