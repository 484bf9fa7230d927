import { CayError, isCayError, type VolumeId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { randomName } from '../../lib/random-name.ts';
import { packTree, unpackTree } from '../archives/tree-process.ts';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { volumeTrees } from './volume-trees.ts';
import { openVolumeRecords, type VolumeRecord } from './volume-record.ts';
import type { HostVolume, VolumeStore, VolumeWish } from './volume.ts';

export interface VolumeStoreOptions {
  /** For the records. */
  dir: string;
  trees: Snapshotter;
  /** What files are stored as. */
  ids: IdMapping;
  guestBinary: string;
  onError?(error: unknown): void;
}

export const VOLUME_FAULTS = [
  'volume.create.recorded',
  'volume.create.made',
  'volume.remove.recorded',
  'volume.remove.gone',
] as const;

const newTree = () => `v-${randomName(20)}`;
export const isVolumeTree = (name: string) => name.startsWith('v-');

export async function openVolumeStore(options: VolumeStoreOptions): Promise<VolumeStore> {
  const { trees, ids, guestBinary, onError = () => {} } = options;
  const records = await openVolumeRecords(options.dir);
  const { requireMakeable, make, used } = volumeTrees({ trees, ids });
  const queue = new KeyedQueue<VolumeId>();
  /** Trees that are being made or read, which no record may name yet. */
  const held = new Set<string>();

  for (const record of records.all.values()) {
    if (record.state === 'making') await undo(record).catch(onError);
    if (record.state === 'removing') await reap(record).catch(onError);
  }

  const kept = (id: VolumeId): VolumeRecord => {
    const record = records.get(id);
    if (record?.state === 'kept') return record;
    throw new CayError('not_found', `Volume "${id}" does not exist`, { details: { what: 'volume' } });
  };

  async function undo(record: VolumeRecord): Promise<void> {
    await dropTrees(record);
    await records.delete(record.id);
  }

  async function dropTrees({ tree, base }: VolumeRecord): Promise<void> {
    await trees.remove(tree);
    if (base !== undefined) await trees.remove(base);
  }

  /** Removes what a removed volume had. A tree that clones descend from stays until they are gone. */
  async function reap(record: VolumeRecord): Promise<void> {
    for (const tree of [record.tree, record.base]) {
      if (tree === undefined) continue;
      if ((await trees.list()).some(({ parent }) => parent === tree)) return;
      await trees.remove(tree);
    }
    await faultPoint('volume.remove.gone');
    await records.delete(record.id);
  }

  /** Records the intent, makes it, fills it, and records that it is there. */
  async function create(
    id: VolumeId,
    wish: VolumeWish,
    fill?: (path: string, record: VolumeRecord) => Promise<void>,
  ): Promise<HostVolume> {
    const { sizeBytes, from, readOnly = false } = wish;
    return queue.run(id, async () => {
      const there = records.get(id);
      if (there?.state === 'kept') {
        if (there.from === from && there.readOnly === readOnly && there.sizeBytes === sizeBytes) return there;
        throw new CayError('already_exists', `Volume "${id}" exists already`);
      }
      if (there) throw new CayError('already_exists', `Volume "${id}" is being removed`);
      const source = wish.from === undefined ? undefined : kept(wish.from);
      requireMakeable(id, wish, source);
      const record: VolumeRecord = {
        id,
        state: 'making',
        tree: newTree(),
        readOnly,
        sizeBytes,
        ...(from !== undefined && { from }),
        ...(source && !readOnly && !source.readOnly && { base: newTree() }),
        baseBytes: source ? null : 0,
      };
      try {
        await records.save(record);
        await faultPoint('volume.create.recorded');
        const made = await make(record, source);
        if (fill) await fill(await trees.path(made.tree), made);
        wish.signal?.throwIfAborted();
        await faultPoint('volume.create.made');
        await records.save({ ...made, state: 'kept' });
        return made;
      } catch (error) {
        await undo(record).catch(onError);
        throw error;
      }
    });
  }

  return {
    limits: trees.capabilities.quota,

    get(id) {
      const record = records.get(id);
      return record?.state === 'kept' ? record : undefined;
    },

    list: () => [...records.all.values()].filter(({ state }) => state === 'kept'),

    create: (id, wish) => create(id, wish),

    import: (id, wish, archive) =>
      create(id, wish, async (path) => {
        const { signal } = wish;
        await unpackTree({ path, ids }, archive, { guestBinary, ...(signal && { signal }) });
      }),

    async *export(id, { signal } = {}) {
      const { tree, readOnly } = kept(id);
      const copy = readOnly ? tree : newTree();
      held.add(copy);
      try {
        if (!readOnly) await trees.commit(copy, tree);
        const path = await trees.committedPath(copy);
        yield* packTree({ path, ids }, { guestBinary, ...(signal && { signal }) });
      } finally {
        if (!readOnly) await trees.remove(copy).catch(onError);
        held.delete(copy);
      }
    },

    usedBytes: (id) => used(kept(id)),

    path: ({ tree, readOnly }) => (readOnly ? trees.committedPath(tree) : trees.path(tree)),

    remove: (id) =>
      queue.run(id, async () => {
        const record = records.get(id);
        if (!record) return;
        await records.save({ ...record, state: 'removing' });
        await faultPoint('volume.remove.recorded');
        // What cannot be removed now is removed by the sweep.
        await reap(record).catch((error: unknown) => {
          if (!isCayError(error, 'failed_precondition')) onError(error);
        });
      }),

    async orphans() {
      for (const record of records.all.values())
        if (record.state === 'removing') await queue.run(record.id, () => reap(record)).catch(onError);
      const all = await trees.list();
      const known = new Set(held);
      for (const { tree, base } of records.all.values()) {
        known.add(tree);
        if (base !== undefined) known.add(base);
      }
      for (const { parent } of all) if (parent !== undefined) known.add(parent);
      return all.map(({ name }) => name).filter((name) => isVolumeTree(name) && !known.has(name));
    },
  };
}
