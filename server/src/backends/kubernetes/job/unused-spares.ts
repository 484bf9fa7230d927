import type { List, Job } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import type { OrphanObject } from '../workloads/sweep.ts';
import { spareSelector } from './job-pool.ts';

/** The spares of a warm pool that the settings no longer ask for. */
export async function unusedSpares({
  client,
  namespace,
  installation,
}: Pick<Place, 'client' | 'namespace' | 'installation'>): Promise<OrphanObject[]> {
  const path = `/apis/batch/v1/namespaces/${namespace}/jobs`;
  const { items } = (await client.json('GET', path, {
    action: 'look for what was left behind',
    query: { labelSelector: spareSelector(installation) },
  })) as List<Job>;
  return items
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    .map(({ metadata: { name, uid } }) => ({
      kind: 'warm_pool',
      name: `jobs/${name}`,
      uid,
      path: `${path}/${name}`,
    }));
}
