import type { Place } from '../kubernetes/pod-backend.ts';
import { listOurs, type Stray } from '../kubernetes/sweep.ts';
import { CORE_VERSION } from './sandbox.ts';
import { EXTENSIONS_VERSION, holderOf, type WarmPool } from './warm-pool.ts';

/** Warm pools and templates of this installation that are not those of the settings, and what keeps them if the settings ask for none. */
export async function unusedPools({ client, namespace, installation }: Place, pool: WarmPool | undefined): Promise<Stray[]> {
  // Until the pool was made once nobody knows which one it is.
  if (pool && pool.current === undefined) return [];
  const strays: Stray[] = [];
  const look = async (version: string, plural: string, isUnused: (name: string) => boolean) => {
    const path = `/apis/${version}/namespaces/${namespace}/${plural}`;
    for (const { name, uid } of await listOurs(client, path, { installation })) {
      if (isUnused(name)) strays.push({ kind: 'warm_pool', name: `${plural}/${name}`, uid, path: `${path}/${name}` });
    }
  };
  await look(EXTENSIONS_VERSION, 'sandboxwarmpools', (name) => name !== pool?.current);
  await look(EXTENSIONS_VERSION, 'sandboxtemplates', (name) => name !== pool?.current);
  await look(CORE_VERSION, 'sandboxes', (name) => !pool && name === holderOf(installation));
  return strays;
}
