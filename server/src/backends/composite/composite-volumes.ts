/** Each volume is on one member, and so are the sandboxes that mount it. */
import { CayError, type VolumeId } from '@cay/sdk/protocol';
import type { CallScope, VolumeKeeping, VolumeWish } from '../backend.ts';
import type { Locations, Member } from './locations.ts';
import type { Members } from './members.ts';

export function compositeVolumes(members: Members, where: Locations): VolumeKeeping {
  function able({ name, backend }: Member): VolumeKeeping {
    const volumes = backend.ability('volumes');
    if (volumes) return volumes;
    throw new CayError('unsupported', `${members.noun} "${name}" has no volumes`, {
      details: { [members.noun]: name },
    });
  }

  async function of(id: VolumeId, scope?: CallScope): Promise<VolumeKeeping> {
    const found = await where.volume(id, scope);
    if (found) return able(found);
    throw new CayError('not_found', `Cannot find volume "${id}"`, { details: { what: 'volume' } });
  }

  /** Where a new volume is made: beside what it begins with, or on the member that is asked for. */
  async function placeOf(
    id: VolumeId,
    { platform, from, ...wish }: VolumeWish,
  ): Promise<{ volumes: VolumeKeeping; own: VolumeWish }> {
    const home = members.home?.(wish);
    const known =
      home === undefined
        ? ((await where.volume(id, wish)) ?? (from && (await where.volume(from, wish))))
        : undefined;
    const name = home ?? known?.name ?? platform ?? members.fallback;
    const volumes = able({ name, backend: await members.get(name) });
    where.note(id, name);
    return { volumes, own: { ...wish, ...(from && { from }) } };
  }

  /** Forgets the location of a volume that could not be made. */
  async function made<T>(id: VolumeId, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      where.forget(id);
      throw error;
    }
  }

  return {
    async createVolume(id, wish) {
      const { volumes, own } = await placeOf(id, wish);
      return made(id, volumes.createVolume(id, own));
    },
    inspectVolume: async (id, scope) => (await of(id, scope)).inspectVolume(id, scope),
    async listVolumes(scope) {
      const answers = await members.each(
        async (backend) => (await backend.ability('volumes')?.listVolumes(scope)) ?? [],
        scope,
      );
      return answers.flatMap((each) => {
        if ('answer' in each) return each.answer;
        throw each.away;
      });
    },
    async removeVolume(id, scope) {
      const found = await where.volume(id, scope);
      if (found) await able(found).removeVolume(id, scope);
      where.forget(id);
    },
    async *exportVolume(id, scope) {
      yield* (await of(id, scope)).exportVolume(id, scope);
    },
    async importVolume(id, wish, archive) {
      const { volumes, own } = await placeOf(id, wish);
      return made(id, volumes.importVolume(id, own, archive));
    },
  };
}
