import type { GuestLinks } from '../kubernetes/guest-links.ts';
import type { KubernetesClient } from '../kubernetes/kubernetes-client.ts';
import type { KubernetesSettings } from '../kubernetes/settings.ts';
import type { JobView } from './job-view.ts';
import type { Jobs } from './jobs.ts';

/** What the verbs of the backend share. */
export interface JobGround {
  client: KubernetesClient;
  namespace: string;
  installation: string;
  settings: KubernetesSettings & { leaseSeconds: number; requests: { cpus: number; memoryBytes: number }; pullPolicy: string };
  jobs: Jobs;
  links: GuestLinks;
  /** Aborted when the backend lets go: what is under way then stays as it is, for whoever comes next. */
  closing: AbortSignal;
  /** The view, up to date from the first use on. */
  looking(): Promise<JobView>;
}
