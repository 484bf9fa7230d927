import { CayError, type Volume } from '@cay/sdk/protocol';
import { isAway } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { beyond } from '../../policy/policy.ts';
import type { MountRow, VolumeRow } from '../../records/tables/volumes.ts';
import type { Core } from '../core.ts';
import { choosePlatform } from '../placement/placement.ts';
import type { Principal } from '../tenants/principal.ts';
import { volumesOn } from './keeps-volumes.ts';
import { makeVolume } from './make-volume.ts';
import type { VolumeVerbs } from './volume.ts';

export function volumeVerbs(
  core: Pick<
    Core,
    'backend' | 'capabilitiesOf' | 'clock' | 'onError' | 'policy' | 'pressure' | 'quota' | 'records'
  >,
): VolumeVerbs {
  const { backend, capabilitiesOf, onError, policy, quota, records } = core;
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
      const wanting = { ...request, from: source, platform, sizeBytes };
      return show(
        await makeVolume(core, principal, wanting, (volumes, id, wish) => volumes.createVolume(id, wish)),
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
      const request = { name, labels: {}, readOnly: false, platform, sizeBytes };
      const made = await makeVolume(core, principal, request, (volumes, id, wish) =>
        volumes.importVolume(id, { ...wish, signal }, counted()),
      );
      return await show(made);
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
