/** The trees that the files of a volume are in. */
import { chmod, chown } from 'node:fs/promises';
import { CayError, type VolumeId } from '@cay/sdk/protocol';
import { USER } from '../sandbox-user.ts';
import type { VolumeStoreOptions } from './open-volume-store.ts';
import type { VolumeRecord } from './volume-record.ts';
import type { VolumeWish } from './volume.ts';

/** Every user of a sandbox may write to a new volume: who mounts it decides. */
const ROOT_MODE = 0o777;
/** Below this a filesystem has no room for its own records. */
const LEAST_BYTES = 4 * 1024 * 1024;

export function volumeTrees({ trees, ids }: Pick<VolumeStoreOptions, 'ids' | 'trees'>) {
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

  /** Makes the trees of a recorded volume, empty or of its source. */
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

  /** Rejects what no tree here can be. `source` is the volume that it is made from. */
  function requireMakeable(
    id: VolumeId,
    { sizeBytes, from, readOnly = false }: VolumeWish,
    source: VolumeRecord | undefined,
  ): void {
    if (sizeBytes !== null && !trees.capabilities.quota)
      throw new CayError(
        'unsupported',
        `Cannot enforce the size of a volume: the ${trees.name} storage has no quota`,
        { hint: 'set "sizeBytes" to null' },
      );
    if (readOnly && from === undefined)
      throw new CayError('invalid_argument', `Cannot make volume "${id}" read-only: it would stay empty`);
    if (readOnly && source?.readOnly)
      throw new CayError('invalid_argument', `Volume "${from}" is a snapshot already`, {
        hint: 'clone it, or use it as it is',
      });
  }

  return { requireMakeable, make, used };
}

function withQuota(quotaBytes: number | null | undefined): { quotaBytes?: number | null } {
  return quotaBytes === undefined ? {} : { quotaBytes };
}
