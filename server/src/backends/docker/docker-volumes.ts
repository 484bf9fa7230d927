import { CayError, type SandboxId, type SandboxSpec, type VolumeId } from '@cay/sdk/protocol';
import type { CallScope, VolumeKeeping } from '../backend.ts';
import { requireVolumeId } from '../support/check.ts';
import { USER } from '../support/sandbox-user.ts';
import { LABELS, volumeName } from './container-config.ts';
import type { DockerContext } from './docker-context.ts';
import { packTar } from './tar-archive.ts';

/** What is read of a volume. */
interface VolumeInspect {
  Name: string;
  Labels: Record<string, string> | null;
}

export interface DockerVolumes extends VolumeKeeping {
  /** Rejects `not_found` for a volume that does not exist: the engine would make one. */
  requireAll(spec: SandboxSpec, scope?: CallScope): Promise<void>;
}

/** Volumes of the engine, with labels that say whose they are. */
export function dockerVolumes({
  client,
  images,
  installation,
}: Pick<DockerContext, 'client' | 'images' | 'installation'>): DockerVolumes {
  const nameOf = (id: VolumeId) => volumeName(installation, id);

  async function inspect(id: VolumeId, signal?: AbortSignal): Promise<VolumeInspect | undefined> {
    requireVolumeId(id);
    const found = (await client.json('GET', `/volumes/${nameOf(id)}`, {
      action: `look at volume "${id}"`,
      signal,
      allow: [404],
    })) as VolumeInspect | undefined;
    return found?.Labels?.[LABELS.installation] === installation ? found : undefined;
  }

  const facts = (id: VolumeId) => ({ id, readOnly: false, sizeBytes: null, usedBytes: null });
  const missing = (id: VolumeId) =>
    new CayError('not_found', `Volume "${id}" does not exist`, { details: { what: 'volume' } });

  /** The engine makes the root of a volume for root alone; every user of a sandbox may write to it. */
  async function openToAll(id: VolumeId, scope: CallScope): Promise<void> {
    const action = `make volume "${id}"`;
    const image = await images.prepare('base', scope);
    const { Id: container } = (await client.json('POST', '/containers/create', {
      action,
      signal: scope.signal,
      body: {
        Image: image.id,
        NetworkDisabled: true,
        Labels: { [LABELS.scratch]: installation },
        HostConfig: {
          NetworkMode: 'none',
          Mounts: [
            { Type: 'volume', Source: nameOf(id), Target: '/volume', VolumeOptions: { NoCopy: true } },
          ],
        },
      },
    })) as { Id: string };
    try {
      const root = { path: 'volume', type: 'directory' as const, mode: 0o777, data: Buffer.alloc(0) };
      await client.json('PUT', `/containers/${container}/archive`, {
        action,
        query: { path: '/' },
        body: packTar([{ ...root, uid: USER.uid, gid: USER.gid }]),
      });
    } finally {
      await client.json('DELETE', `/containers/${container}`, {
        action,
        query: { force: true },
        allow: [404, 409],
      });
    }
  }

  async function mounting(id: VolumeId, signal?: AbortSignal): Promise<SandboxId[]> {
    const filters = { volume: [nameOf(id)], label: [LABELS.sandbox] };
    const found = (await client.json('GET', '/containers/json', {
      action: `look who mounts volume "${id}"`,
      query: { all: true, filters: JSON.stringify(filters) },
      signal,
    })) as { Labels: Record<string, string> }[];
    return found.map(({ Labels }) => Labels[LABELS.sandbox] as SandboxId);
  }

  function unsupported(what: string): never {
    throw new CayError('unsupported', `Volumes of the Docker engine cannot be ${what}`);
  }

  return {
    async createVolume(id, { sizeBytes, from, readOnly, ...scope }) {
      requireVolumeId(id);
      if (readOnly && from === undefined)
        throw new CayError('invalid_argument', `Cannot make volume "${id}" read-only: it would stay empty`);
      if (sizeBytes !== null) unsupported('limited in size');
      if (from !== undefined) unsupported('copied');
      if (await inspect(id, scope.signal)) return facts(id);
      await client.json('POST', '/volumes/create', {
        action: `make volume "${id}"`,
        signal: scope.signal,
        body: { Name: nameOf(id), Labels: { [LABELS.installation]: installation, [LABELS.volume]: id } },
      });
      try {
        await openToAll(id, scope);
      } catch (error) {
        await client.json('DELETE', `/volumes/${nameOf(id)}`, {
          action: `remove volume "${id}"`,
          allow: [404],
        });
        throw error;
      }
      return facts(id);
    },

    async inspectVolume(id, { signal } = {}) {
      if (!(await inspect(id, signal))) throw missing(id);
      return facts(id);
    },

    async listVolumes({ signal } = {}) {
      const { Volumes } = (await client.json('GET', '/volumes', {
        action: 'list volumes',
        query: {
          filters: JSON.stringify({ label: [`${LABELS.installation}=${installation}`, LABELS.volume] }),
        },
        signal,
      })) as { Volumes: VolumeInspect[] | null };
      return (Volumes ?? []).map(({ Labels }) => ({
        id: Labels![LABELS.volume] as VolumeId,
        readOnly: false,
        sizeBytes: null,
      }));
    },

    async removeVolume(id, { signal } = {}) {
      if (!(await inspect(id, signal))) return;
      const sandboxes = await mounting(id, signal);
      if (sandboxes.length > 0)
        throw new CayError(
          'failed_precondition',
          `Cannot remove volume "${id}": ${sandboxes.length} sandboxes mount it`,
          { hint: 'remove these sandboxes first', details: { sandboxes } },
        );
      await client.json('DELETE', `/volumes/${nameOf(id)}`, {
        action: `remove volume "${id}"`,
        signal,
        allow: [404],
      });
    },

    exportVolume: () => unsupported('exported'),
    importVolume: async () => unsupported('imported'),

    async requireAll({ mounts = [] }, { signal } = {}) {
      for (const mount of mounts) {
        if (mount.type !== 'volume') continue;
        const id = mount.volume as VolumeId;
        if (!(await inspect(id, signal))) throw missing(id);
      }
    },
  };
}
