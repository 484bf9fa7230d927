import type { Backend } from '../../backend.ts';
import { kubernetesBackend } from '../kubernetes-backend.ts';
import type { PodBackendOptions } from '../pod-backend.ts';
import { renderJobProbe } from './job-probe.ts';
import { kubernetesJobs } from './jobs.ts';
import { KINDS, RIGHTS } from './needs.ts';

/**
 * The kubernetes-job backend: a sandbox is the pod of a Job. Its deadline is the Job's, and its files are the
 * pod's: stopping it ends its processes and keeps the pod.
 */
export function kubernetesJobBackend(options: PodBackendOptions): Promise<Backend> {
  return kubernetesBackend(
    {
      name: 'kubernetes-job',
      kinds: KINDS,
      rights: RIGHTS,
      freezes: true,
      in: (place) => ({ workloads: kubernetesJobs(place) }),
      renderProbe: renderJobProbe,
    },
    options,
  );
}
