import { CayError, newId, type CreateVolume } from '@cay/sdk/protocol';
import type { VolumeFacts, VolumeKeeping, VolumeWish } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Transaction } from '../../records/records.ts';
import type { VolumeRow } from '../../records/tables/volumes.ts';
import type { Core } from '../core.ts';
import type { Principal } from '../tenants/principal.ts';
import { volumesOn } from './keeps-volumes.ts';

export interface NewVolume extends Pick<CreateVolume, 'name' | 'labels' | 'readOnly'> {
  from?: VolumeRow | undefined;
  platform: string | undefined;
  sizeBytes: number | null;
}

type MakeVolume = Pick<Core, 'backend' | 'clock' | 'onError' | 'pressure' | 'quota' | 'records'>;

/** Records the intent, makes it, and records the result. A failure leaves nothing. */
export async function makeVolume(
  core: MakeVolume,
  principal: Principal,
  request: NewVolume,
  work: (volumes: VolumeKeeping, id: VolumeRow['id'], wish: VolumeWish) => Promise<VolumeFacts>,
): Promise<VolumeRow> {
  const { backend, clock, onError, pressure, records } = core;
  const { project, key } = principal;
  const { name, labels, readOnly, from, platform, sizeBytes } = request;
  const volumes = await volumesOn(backend, platform ?? null);
  const beginsWith = readOnly
    ? ((await volumes.inspectVolume(from!.id, { project })).usedBytes ?? 0)
    : undefined;
  const row: VolumeRow = {
    id: newId('vol'),
    project,
    name,
    platform: platform ?? null,
    state: 'making',
    readOnly,
    sizeBytes,
    countedBytes: beginsWith ?? sizeBytes ?? 0,
    from: from?.id ?? null,
    labels,
    createdAtMs: clock.now(),
  };
  await pressure.admit({ memoryBytes: null, diskBytes: null }, { starts: false, platform });
  await records.transaction(async (tx) => {
    if (!(await tx.projects.get(project)))
      throw new CayError('permission_denied', `Project "${project}" does not exist any more`);
    await requireQuota(core, tx, row);
    await tx.volumes.insert(row);
  });
  try {
    await faultPoint('control.volume.recorded');
    await work(volumes, row.id, { project, sizeBytes, ...(from && { from: from.id }), readOnly });
    await faultPoint('control.volume.made');
    await records.transaction(async (tx) => {
      await tx.volumes.update(row.id, { state: 'kept' });
      const data = { volume: row.id, name, sizeBytes, readOnly, ...(from && { from: from.id }) };
      await tx.events.append({ type: 'volume.created', project, key, data });
    });
  } catch (error) {
    await volumes
      .removeVolume(row.id, { project })
      .then(() => records.volumes.delete(row.id))
      .catch(onError);
    throw error;
  }
  return row;
}

async function requireQuota(
  { quota }: Pick<Core, 'quota'>,
  tx: Transaction,
  { project, sizeBytes, readOnly, countedBytes }: VolumeRow,
) {
  await quota.requireRoom(tx, project, 'volumes', 1);
  if (sizeBytes === null && !readOnly && (await quota.limit(tx, project, 'volumeBytes')) !== null)
    throw new CayError('resource_exhausted', 'The project has a quota of bytes of volumes: give a size', {
      details: { quota: 'volumeBytes' },
      hint: 'give "sizeBytes"; where the platform cannot enforce a size, have the quota lifted',
    });
  await quota.requireRoom(tx, project, 'volumeBytes', countedBytes);
}
