import { inject } from 'vitest';
import { cpuUsageMsOf } from '../cluster/cgroups.ts';
import { ctrOf } from '../cluster/ctr.ts';
import type { Cluster } from '../cluster/cluster.ts';

export type SharedCluster = Pick<Cluster, 'directory' | 'kubeconfig' | 'ctr' | 'cpuUsageMs'>;

/**
 * The cluster that the setup has started, as far as several tests at once may use it; `why` tells what is
 * skipped.
 */
export async function sharedCluster(
  name: string,
): Promise<{ cluster: SharedCluster; why?: string; whyNoGvisor?: string }> {
  const shared = inject('cluster');
  if ('whyNot' in shared) {
    console.info(`${name}: skipped: ${shared.whyNot}`);
    return { cluster: undefined as never, why: shared.whyNot, whyNoGvisor: shared.whyNot };
  }
  const { directory, kubeconfig, whyNoGvisor } = shared;
  if (whyNoGvisor !== undefined) console.info(`${name} on gVisor: skipped: ${whyNoGvisor}`);
  return {
    cluster: { directory, kubeconfig, ctr: await ctrOf(directory), cpuUsageMs: cpuUsageMsOf(directory) },
    whyNoGvisor,
  };
}
