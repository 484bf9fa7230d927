import { CayError } from '@cay/sdk/protocol';
import type { Backend, VolumeKeeping } from '../../backends/backend.ts';
import { platformsOf } from '../placement/placement.ts';

/** The volumes of a platform. Rejects `unsupported` where it has none, `unavailable` while it is away. */
export async function volumesOn(backend: Backend, platform: string | null): Promise<VolumeKeeping> {
  const chosen = platform === null ? undefined : platformsOf(backend).find(({ name }) => name === platform);
  const on = chosen ? await chosen.open() : backend;
  const volumes = on.ability('volumes');
  if (volumes) return volumes;
  throw new CayError('unsupported', `The ${on.name} backend has no volumes`);
}
