import type { Backend } from '../../backend.ts';
import { kubernetesBackend } from '../kubernetes-backend.ts';
import type { PodBackendOptions } from '../pod-backend.ts';
import { checkWarmPool } from '../workloads/warm-pool-size.ts';
import { renderJobProbe } from './job-probe.ts';
import { jobPool } from './job-pool.ts';
import { kubernetesJobs } from './jobs.ts';
import { KINDS, RIGHTS } from './needs.ts';
import { unusedSpares } from './unused-spares.ts';

export interface KubernetesJobOptions extends PodBackendOptions {
  /** Jobs of the default spec that are kept running in advance, in each namespace. Default 0. */
  warmPool?: number;
}

/**
 * The kubernetes-job backend: a sandbox is the pod of a Job. Its deadline is the Job's, and its files are the
 * pod's: stopping it ends its processes and keeps the pod. With a warm pool in the settings, a sandbox of the
 * default spec gets a Job that runs already.
 */
export async function kubernetesJobBackend(options: KubernetesJobOptions): Promise<Backend> {
  const size = checkWarmPool(options.warmPool);
  return kubernetesBackend(
    {
      name: 'kubernetes-job',
      kinds: KINDS,
      rights: RIGHTS,
      freezes: true,
      in(place) {
        const onError = (error: unknown) => options.onError?.(error);
        const pool = size > 0 ? jobPool(place, { size, onError }) : undefined;
        return {
          workloads: kubernetesJobs(place, pool),
          prepare: (runtime) => pool?.keep(runtime) ?? Promise.resolve(),
          orphans: async () => (pool ? [] : unusedSpares(place)),
          renewShared: () => pool?.renew() ?? Promise.resolve(),
          close: () => pool?.close(),
        };
      },
      renderProbe: renderJobProbe,
    },
    options,
  );
}
