import type { Place } from '../pod-kind.ts';
import { isInstalled } from '../prerequisites.ts';
import { listOurs, type OrphanObject } from '../workloads/sweep.ts';
import { POOL_KINDS } from './needs.ts';
import { CORE_VERSION } from './sandbox.ts';
import { holderOf } from './pool-objects.ts';
import type { WarmPool } from './warm-pool.ts';

/**
 * Warm pools and templates of this installation that are not those of the settings, and what keeps them if
 * the settings ask for none.
 */
export async function unusedPools(
  { client, namespace, installation }: Pick<Place, 'client' | 'namespace' | 'installation'>,
  pool: WarmPool | undefined,
): Promise<OrphanObject[]> {
  // Until the pool was applied once its name is not known.
  if (pool && pool.current === undefined) return [];
  const orphans: OrphanObject[] = [];
  const look = async (version: string, plural: string, isUnused: (name: string) => boolean) => {
    const path = `/apis/${version}/namespaces/${namespace}/${plural}`;
    for (const { name, uid } of await listOurs(client, path, { installation })) {
      if (isUnused(name))
        orphans.push({ kind: 'warm_pool', name: `${plural}/${name}`, uid, path: `${path}/${name}` });
    }
  };
  for (const kind of POOL_KINDS.filter(({ resource }) => resource !== 'sandboxclaims')) {
    // A cluster of an installation without a pool need not have its kinds.
    if (pool || (await isInstalled(client, kind)))
      await look(kind.groupVersion, kind.resource, (name) => name !== pool?.current);
  }
  await look(CORE_VERSION, 'sandboxes', (name) => !pool && name === holderOf(installation));
  return orphans;
}
