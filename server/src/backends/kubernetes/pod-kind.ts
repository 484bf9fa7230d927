import type { KubernetesClient } from './client/kubernetes-client.ts';
import type { Kind, Right } from './prerequisites.ts';
import type { Runtime } from './runtimes.ts';
import type { ProbeObject, ProbeOptions } from './tenancy/network-probe.ts';
import type { PodAbilities } from './workloads/pod-abilities.ts';
import type { OrphanObject } from './workloads/sweep.ts';
import type { WorkloadContext } from './workloads/workload-context.ts';
import type { Workloads } from './workloads/workload.ts';

/** The differences between the backends on Kubernetes: which workload keeps the pod, and what that can do. */
export interface PodBackendKind extends PodAbilities {
  name: string;
  kinds: Kind[];
  rights: Right[];
  /** The size of the volume that keeps the files of a sandbox, where there is one. */
  volumeBytes?: number;
  in(place: Place): KindInPlace;
  /** The workload of the pod that tries the network. */
  renderProbe(
    probe: Parameters<ProbeOptions['render']>[0],
    place: Pick<Place, 'namespace' | 'client'>,
  ): ProbeObject;
}

/** A kind in one namespace. */
export interface KindInPlace {
  workloads: Workloads;
  /** Makes what all sandboxes share, each time that the runtimes were read. */
  prepare?(runtime: Runtime): Promise<void>;
  /** Shared resources that are not needed any more. */
  orphans?(): Promise<OrphanObject[]>;
  /** Renews the lease of shared resources. */
  renewShared?(): Promise<void>;
  /** Lets go of them. They stay in the cluster. */
  close?(): void;
}

export interface Place {
  client: KubernetesClient;
  namespace: string;
  installation: string;
  settings: WorkloadContext['settings'];
}
