import type { GuestLinks } from '../links/guest-links.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import type { KubernetesSettings } from '../settings.ts';
import type { WorkloadView } from './workload-view.ts';
import type { Workloads } from './workload.ts';

/** What the verbs of a backend on Kubernetes share. */
export interface WorkloadContext {
  client: KubernetesClient;
  namespace: string;
  installation: string;
  settings: KubernetesSettings & {
    leaseSeconds: number;
    requests: { cpus: number; memoryBytes: number };
    pullPolicy: string;
  };
  workloads: Workloads;
  links: GuestLinks;
  /** Aborted when the backend closes: work under way stops as it is, and the next server continues it. */
  closing: AbortSignal;
  /** Reports an error that no caller waits for. */
  onError(error: unknown): void;
  /** The view, up to date from the first use on. */
  looking(): Promise<WorkloadView>;
}
