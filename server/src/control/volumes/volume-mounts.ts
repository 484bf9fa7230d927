import { CayError, type BucketMount, type Mount } from '@cay/sdk/protocol';
import type { Tables } from '../../records/tables/tables.ts';

/**
 * Mounts with the ids of volumes in place of their names. Rejects `not_found` for a volume that the project
 * does not have, `failed_precondition` for one on another platform or a snapshot that is to be written.
 */
export async function resolveMounts(
  on: Pick<Tables, 'volumes' | 'buckets'>,
  { project, platform }: { project: string; platform: string | undefined },
  mounts: readonly Mount[],
): Promise<Mount[]> {
  return Promise.all(
    mounts.map(async (mount): Promise<Mount> => {
      if (mount.type === 'bucket') return bucketMount(on, project, mount);
      if (mount.type !== 'volume') return mount;
      const volume = await on.volumes.find(project, mount.volume);
      if (volume?.state !== 'kept')
        throw new CayError('not_found', `Volume "${mount.name ?? mount.volume}" does not exist`, {
          details: { what: 'volume', volume: mount.name ?? mount.volume },
          hint: 'create it first, or name another',
        });
      if (platform !== undefined && volume.platform !== null && volume.platform !== platform)
        throw new CayError(
          'failed_precondition',
          `Cannot mount volume "${volume.name}" on platform "${platform}": it is on "${volume.platform}"`,
          { details: { what: 'volume', platform: volume.platform } },
        );
      if (volume.readOnly && !mount.readOnly)
        throw new CayError(
          'failed_precondition',
          `Cannot mount volume "${volume.name}" to be written: it is a snapshot`,
          { details: { what: 'volume' }, hint: 'mount it read-only, or clone it' },
        );
      return { ...mount, volume: volume.id, name: volume.name };
    }),
  );
}

async function bucketMount(
  on: Pick<Tables, 'buckets'>,
  project: string,
  mount: BucketMount,
): Promise<BucketMount> {
  const info = await on.buckets.get(project, mount.bucket);
  if (!info)
    throw new CayError('not_found', `Bucket "${mount.bucket}" does not exist`, {
      details: { what: 'bucket' },
      hint: 'give it a name first: cay bucket add',
    });
  if (info.readOnly && !mount.readOnly)
    throw new CayError(
      'failed_precondition',
      `Cannot mount bucket "${mount.bucket}" to be written: it is read-only`,
      { details: { what: 'bucket' }, hint: 'mount it read-only' },
    );
  return mount;
}
