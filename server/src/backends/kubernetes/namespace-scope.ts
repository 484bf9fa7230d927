import type { KubernetesClient } from './client/kubernetes-client.ts';
import type { NetworkEnforcing } from './tenancy/network-enforcement.ts';

/** The namespace that one pod backend works in, and what is special about it. */
export interface NamespaceScope {
  client: KubernetesClient;
  namespace: string;
  /** The project that the namespace is for; the server has its rights there. Absent: the installation's. */
  project?: string;
  /** No sandboxes are made here: each project has a namespace of its own. */
  withoutSandboxes?: boolean;
  /** Whether the cluster enforces network policies; tried once, in the installation's namespace. */
  network?: NetworkEnforcing | undefined;
}
