import { CayError, type SandboxId, type VolumeId } from '@cay/sdk/protocol';
import type { VolumeStore } from '../../host/volumes/volume.ts';
import type { VolumeFacts, VolumeKeeping } from '../backend.ts';
import { requireVolumeId } from '../support/check.ts';
import type { Engine } from './engine.ts';

/** The volumes of this machine. */
export function volumeVerbs({ records }: Pick<Engine, 'records'>, store: VolumeStore): VolumeKeeping {
  async function facts(id: VolumeId): Promise<VolumeFacts> {
    requireVolumeId(id);
    const usedBytes = await store.usedBytes(id);
    const { readOnly, sizeBytes } = store.get(id)!;
    return { id, readOnly, sizeBytes, usedBytes };
  }

  const mounting = (id: VolumeId): SandboxId[] =>
    [...records.all.values()]
      .filter(({ spec }) => spec.mounts?.some((mount) => mount.type === 'volume' && mount.volume === id))
      .map((record) => record.id);

  return {
    async createVolume(id, wish) {
      requireVolumeId(id);
      await store.create(id, wish);
      return facts(id);
    },

    inspectVolume: facts,

    listVolumes: async () => store.list().map(({ id, readOnly, sizeBytes }) => ({ id, readOnly, sizeBytes })),

    async removeVolume(id) {
      requireVolumeId(id);
      const sandboxes = mounting(id);
      if (sandboxes.length > 0)
        throw new CayError(
          'failed_precondition',
          `Cannot remove volume "${id}": ${sandboxes.length} sandboxes mount it`,
          { hint: 'remove these sandboxes first', details: { sandboxes } },
        );
      await store.remove(id);
    },

    exportVolume: (id, scope) => store.export(id, scope),

    async importVolume(id, wish, archive) {
      requireVolumeId(id);
      await store.import(id, wish, archive);
      return facts(id);
    },
  };
}
