import { chmod, chown } from 'node:fs/promises';
import { CayError, isCayError, type VolumeId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { randomName } from '../../lib/random-name.ts';
import { packTree, unpackTree } from '../archives/tree-process.ts';
import type { IdMapping } from '../runtimes/runtime.ts';
import { USER } from '../sandbox-user.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
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

/** Every user of a sandbox may write to a new volume: who mounts it decides. */
const ROOT_MODE = 0o777;
/** Below this a filesystem has no room for its own records. */
const LEAST_BYTES = 4 * 1024 * 1024;

const newTree = () => `v-${randomName(20)}`;
export const isVolumeTree = (name: string) => name.startsWith('v-');

export async function openVolumeStore(options: VolumeStoreOptions): Promise<VolumeStore> {
  const { trees, ids, guestBinary, onError = () => {} } = options;
  const records = await openVolumeRecords(options.dir);
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

  async function used({ tree, readOnly, baseBytes }: VolumeRecord): Promise<number | null> {
    if (readOnly) return baseBytes;
    const written = await trees.written(tree);
    return written === undefined || baseBytes === null ? null : baseBytes + written;
  }

  /** What may be written beyond what it begins with. */
  function quotaOf(sizeBytes: number | null, beginsWith: number): number | null | undefined {
    if (!trees.capabilities.quota) return undefined;
    if (sizeBytes === null) return null;
    if (sizeBytes - beginsWith >= LEAST_BYTES) return sizeBytes - beginsWith;
    throw new CayError(
      'failed_precondition',
      `Cannot make a volume of ${sizeBytes} bytes: what it begins with takes ${beginsWith}`,
      { hint: `ask for ${beginsWith + LEAST_BYTES} bytes or more` },
    );
  }

  async function make(record: VolumeRecord, source: VolumeRecord | undefined): Promise<VolumeRecord> {
    const { tree, base, readOnly, sizeBytes } = record;
    if (!source) {
      const path = await trees.prepare(tree, withQuota(quotaOf(sizeBytes, 0)));
      await chown(path, ids.hostId + USER.uid, ids.hostId + USER.gid);
      await chmod(path, ROOT_MODE);
      return record;
    }
    if (readOnly) {
      await trees.commit(tree, source.tree);
      return { ...record, baseBytes: await used(source) };
    }
    if (base !== undefined) await trees.commit(base, source.tree);
    // After the commit, when the count is up to date.
    const baseBytes = await used(source);
    await trees.prepare(tree, {
      parent: base ?? source.tree,
      ...withQuota(quotaOf(sizeBytes, baseBytes ?? 0)),
    });
    return { ...record, baseBytes };
  }

  function check(id: VolumeId, { sizeBytes, from, readOnly = false }: VolumeWish): VolumeRecord | undefined {
    if (sizeBytes !== null && !trees.capabilities.quota)
      throw new CayError(
        'unsupported',
        `Cannot enforce the size of a volume: the ${trees.name} storage has no quota`,
        { hint: 'set "sizeBytes" to null' },
      );
    if (readOnly && from === undefined)
      throw new CayError('invalid_argument', `Cannot make volume "${id}" read-only: it would stay empty`);
    if (from === undefined) return undefined;
    const source = kept(from);
    if (readOnly && source.readOnly)
      throw new CayError('invalid_argument', `Volume "${from}" is a snapshot already`, {
        hint: 'clone it, or use it as it is',
      });
    return source;
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
      const source = check(id, wish);
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

function withQuota(quotaBytes: number | null | undefined): { quotaBytes?: number | null } {
  return quotaBytes === undefined ? {} : { quotaBytes };
}
