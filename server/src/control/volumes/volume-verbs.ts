import { CayError, newId, type CreateVolume, type Volume } from '@cay/sdk/protocol';
import { isAway, type VolumeFacts, type VolumeKeeping, type VolumeWish } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { beyond } from '../../policy/policy.ts';
import type { Transaction } from '../../records/records.ts';
import type { MountRow, VolumeRow } from '../../records/tables/volumes.ts';
import type { Core } from '../core.ts';
import { choosePlatform } from '../placement/placement.ts';
import type { Principal } from '../tenants/principal.ts';
import { volumesOn } from './keeps-volumes.ts';
import type { VolumeVerbs } from './volume.ts';

export function volumeVerbs({
  backend,
  capabilitiesOf,
  clock,
  onError,
  policy,
  pressure,
  quota,
  records,
}: Pick<
  Core,
  'backend' | 'capabilitiesOf' | 'clock' | 'onError' | 'policy' | 'pressure' | 'quota' | 'records'
>): VolumeVerbs {
  quota.counts('volumes', 'volumes', async (project, on) => (await on.volumes.usage(project)).count);
  quota.counts('volumeBytes', 'volumes', async (project, on) => (await on.volumes.usage(project)).bytes);

  async function find({ project }: Principal, ref: string): Promise<VolumeRow> {
    const row = await records.volumes.find(project, ref);
    if (row?.state === 'kept') return row;
    throw new CayError('not_found', `Volume "${ref}" does not exist`, { details: { what: 'volume' } });
  }

  /** The size asked for, or that of a sandbox's disk where the platform can enforce it. */
  async function sizeOf(
    asked: number | null | undefined,
    platform: string | undefined,
    source: VolumeRow | undefined,
  ): Promise<number | null> {
    const { abilities } = await capabilitiesOf(platform);
    const usual = source && !source.readOnly ? source.sizeBytes : policy.defaults.diskBytes;
    const sizeBytes = asked === undefined ? (abilities.volumeSize ? usual : null) : asked;
    const most = policy.maxima.diskBytes;
    if (abilities.volumeSize && beyond(sizeBytes, most))
      throw new CayError(
        'invalid_argument',
        `A volume of ${sizeBytes ?? 'any'} bytes is beyond the operator's maximum of ${most}`,
        { details: { limit: 'diskBytes', asked: sizeBytes, maximum: most } },
      );
    return sizeBytes;
  }

  async function requireArchives(platform: string | undefined): Promise<void> {
    const { abilities, notes } = await capabilitiesOf(platform);
    if (abilities.volumeArchives) return;
    throw new CayError('unsupported', `Volumes are no archives here: ${notes.volumeArchives}`);
  }

  async function requireQuota(tx: Transaction, { project, sizeBytes, readOnly, countedBytes }: VolumeRow) {
    await quota.requireRoom(tx, project, 'volumes', 1);
    if (sizeBytes === null && !readOnly && (await quota.limit(tx, project, 'volumeBytes')) !== null)
      throw new CayError('resource_exhausted', 'The project has a quota of bytes of volumes: give a size', {
        details: { quota: 'volumeBytes' },
        hint: 'give "sizeBytes"; where the platform cannot enforce a size, have the quota lifted',
      });
    await quota.requireRoom(tx, project, 'volumeBytes', countedBytes);
  }

  async function show(row: VolumeRow, mounts?: MountRow[]): Promise<Volume> {
    const { id, platform, state: _state, countedBytes: _counted, ...shown } = row;
    const usedBytes = await volumesOn(backend, platform)
      .then((volumes) => volumes.inspectVolume(id, { project: row.project }))
      .then(
        (facts) => facts.usedBytes,
        (error: unknown) => {
          if (!isAway(error)) onError(error);
          return null;
        },
      );
    const found = mounts ?? (await records.volumes.mounts({ volume: id }));
    return {
      ...shown,
      id,
      ...(platform !== null && { platform }),
      usedBytes,
      mountedBy: found.filter(({ volume }) => volume === id).map(({ volume: _volume, ...mount }) => mount),
    };
  }

  /** Records the intent, makes it, and records the result. A failure leaves nothing. */
  async function make(
    principal: Principal,
    request: Pick<CreateVolume, 'name' | 'labels' | 'readOnly'> & { from?: VolumeRow | undefined },
    platform: string | undefined,
    sizeBytes: number | null,
    work: (volumes: VolumeKeeping, id: VolumeRow['id'], wish: VolumeWish) => Promise<VolumeFacts>,
  ): Promise<Volume> {
    const { project, key } = principal;
    const { name, labels, readOnly, from } = request;
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
      await requireQuota(tx, row);
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
    return show(row);
  }

  return {
    async create(principal, request) {
      const { from, readOnly, labels } = request;
      if (readOnly && from === undefined)
        throw new CayError('invalid_argument', '"readOnly" needs "from": a snapshot is one of a volume');
      const source = from === undefined ? undefined : await find(principal, from);
      const wanted = request.platform ?? source?.platform ?? undefined;
      const platform = choosePlatform(backend, { labels, ...(wanted !== undefined && { platform: wanted }) });
      if (source && source.platform !== null && platform !== source.platform)
        throw new CayError(
          'failed_precondition',
          `Cannot copy volume "${source.name}" to platform "${platform}": it is on "${source.platform}"`,
          { hint: 'export it, and import it there' },
        );
      const { abilities, notes } = await capabilitiesOf(platform);
      if (source && !abilities.volumeCopies)
        throw new CayError('unsupported', `Volumes cannot be copied here: ${notes.volumeCopies}`, {
          hint: 'export it, and import it under another name',
        });
      const sizeBytes = readOnly ? null : await sizeOf(request.sizeBytes, platform, source);
      return make(principal, { ...request, from: source }, platform, sizeBytes, (volumes, id, wish) =>
        volumes.createVolume(id, wish),
      );
    },

    async list({ project }) {
      const mounts = await records.volumes.mounts({ project });
      const rows = (await records.volumes.list(project)).filter(({ state }) => state === 'kept');
      return Promise.all(rows.map((row) => show(row, mounts)));
    },

    get: async (principal, ref) => show(await find(principal, ref)),

    async remove({ project, key }, ref) {
      const row = await records.transaction(async (tx) => {
        const found = await tx.volumes.find(project, ref);
        if (!found) return undefined;
        const mounts = await tx.volumes.mounts({ volume: found.id });
        if (mounts.length > 0) throw inUse(found, mounts);
        await tx.volumes.update(found.id, { state: 'removing' });
        return found;
      });
      if (!row) return;
      await faultPoint('control.volume.removing');
      await (await volumesOn(backend, row.platform)).removeVolume(row.id, { project });
      await faultPoint('control.volume.removed');
      await records.transaction(async (tx) => {
        await tx.volumes.delete(row.id);
        const data = { volume: row.id, name: row.name };
        await tx.events.append({ type: 'volume.removed', project, key, data });
      });
    },

    async export(principal, ref, { signal }) {
      const { id, platform, project } = await find(principal, ref);
      await requireArchives(platform ?? undefined);
      return (await volumesOn(backend, platform)).exportVolume(id, { project, signal });
    },

    async import(principal, archive, { name, sizeBytes: asked, platform: wanted }, { signal }) {
      const platform = choosePlatform(backend, {
        labels: {},
        ...(wanted !== undefined && { platform: wanted }),
      });
      await requireArchives(platform);
      const sizeBytes = await sizeOf(asked, platform, undefined);
      using coming = quota.begin(principal.project, 'imports', ['uploadBytes']);
      async function* counted() {
        for await (const bytes of archive) {
          await coming.add(bytes.length);
          yield bytes;
        }
      }
      const request = { name, labels: {}, readOnly: false };
      return await make(principal, request, platform, sizeBytes, (volumes, id, wish) =>
        volumes.importVolume(id, { ...wish, signal }, counted()),
      );
    },
  };
}

function inUse({ name }: VolumeRow, mounts: readonly MountRow[]): CayError {
  const sandboxes = [
    ...new Map(mounts.map((mount) => [mount.sandbox, mount.name ?? mount.sandbox])).values(),
  ];
  const shown = sandboxes.slice(0, 5).join(', ') + (sandboxes.length > 5 ? ', …' : '');
  return new CayError(
    'failed_precondition',
    `Cannot remove volume "${name}": ${sandboxes.length === 1 ? 'a sandbox has' : `${sandboxes.length} sandboxes have`} it mounted (${shown})`,
    { hint: 'remove these sandboxes first', details: { sandboxes: mounts.map(({ sandbox }) => sandbox) } },
  );
}
