import type { CayError, SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import type { CallScope } from '../../backend.ts';
import { hashOf } from '../../support/spec-hash.ts';
import { ANNOTATIONS, LABELS, MANAGER, objectName } from '../client/names.ts';
import type { KubernetesObject, Pod } from '../client/objects.ts';
import type { PodOptions } from './pod-spec.ts';
import type { Failure } from './pod-state.ts';
import type { Runtime } from '../runtimes.ts';
import type { Standing } from './workload-status.ts';
import type { WorkloadContext } from './workload-context.ts';

/** The object that keeps the pod of a sandbox: a Job, or what another controller knows. */
export type Workload = KubernetesObject;

export interface Found {
  workload: Workload;
  /** The workload's own, by owner reference. */
  pods: Pod[];
}

export interface WorkloadOptions extends PodOptions {
  namespace: string;
  installation: string;
  specHash: string;
  leaseSeconds: number;
  project?: string;
}

export function workloadOptionsOf(
  { settings, namespace, installation }: Pick<WorkloadContext, 'settings' | 'namespace' | 'installation'>,
  spec: SandboxSpec,
  runtime: Runtime,
): WorkloadOptions {
  const { requests, pullPolicy, leaseSeconds } = settings;
  return {
    settings,
    requests,
    pullPolicy,
    leaseSeconds,
    namespace,
    installation,
    runtime,
    specHash: hashOf(spec),
  };
}

/** Objects that are kept in sight, each with the words for it in messages. */
export interface Collection {
  path: string;
  what: string;
  selector: string;
}

/** The workloads of one installation in one namespace, of the kind that a backend makes. */
export interface Workloads {
  /** Where they are, for watches. Of a sandbox that is in several, the first one's object counts. */
  readonly collections: Collection[];
  readonly pods: Collection;
  find(id: SandboxId, options?: CallScope): Promise<Found | undefined>;
  exists(id: SandboxId): Promise<boolean>;
  list(options?: CallScope): Promise<(Found & { id: SandboxId })[]>;
  /** Makes the workload, or finds the one that an earlier call has made. */
  create(
    id: SandboxId,
    spec: SandboxSpec,
    incarnation: number,
    options: WorkloadOptions & CallScope,
  ): Promise<Workload>;
  /**
   * Writes how it stands. One that keeps its files apart has its pod ended by `stopped`, and made anew by any
   * other mark.
   */
  note(workload: Workload, standing: Standing, options?: CallScope): Promise<void>;
  /** How long the cluster keeps it, if nobody renews that. */
  leftSeconds(workload: Workload): number;
  /** Has the cluster keep the workload for that many seconds more. */
  renew(workload: Workload, leaseSeconds: number): Promise<void>;
  /** Asks the cluster to remove it with all that it has. Resolves whether there was one. */
  remove(id: SandboxId, options?: CallScope): Promise<boolean>;
  /** Why it will never run again; `undefined` while it may. */
  whyOver(workload: Workload): Failure | undefined;
  /** Whether its files outlive its pod. */
  keepsFiles(workload: Workload): boolean;
  /** What its own status says that stands in the way of a pod. `lasting`: it has for a while. */
  whyStuck?(workload: Workload, action: string, lasting: boolean): CayError | undefined;
  /**
   * What the cluster has given for this workload out of these pods, if it has: it is what counts from the
   * next note on.
   */
  given?(workload: Workload, pods: Pod[]): Found | undefined;
  /** The view has seen what was noted. */
  settled?(workload: Workload, standing: Standing): Promise<void>;
}

/** What every object says by which a sandbox is made. */
export function workloadMetadata(
  id: SandboxId,
  spec: SandboxSpec,
  incarnation: number,
  options: Pick<WorkloadOptions, 'namespace' | 'installation' | 'project' | 'specHash' | 'runtime'>,
): { name: string; namespace: string; labels: Record<string, string>; annotations: Record<string, string> } {
  const { cpus, memoryBytes, diskBytes } = spec.limits;
  return {
    name: objectName(id),
    namespace: options.namespace,
    labels: { ...sandboxLabels(id, options), [LABELS.incarnation]: String(incarnation) },
    annotations: {
      [ANNOTATIONS.specHash]: options.specHash,
      [ANNOTATIONS.runtime]: options.runtime.name,
      [ANNOTATIONS.mark]: 'starting' satisfies Standing['mark'],
      ...(memoryBytes !== null && { [ANNOTATIONS.memoryBytes]: String(memoryBytes) }),
      ...(cpus !== null && { [ANNOTATIONS.cpus]: String(cpus) }),
      ...(diskBytes !== null && { [ANNOTATIONS.diskBytes]: String(diskBytes) }),
    },
  };
}

export function sandboxLabels(
  id: SandboxId,
  { installation, project }: Pick<WorkloadOptions, 'installation' | 'project'>,
): Record<string, string> {
  return {
    ...installationLabels(installation),
    [LABELS.sandbox]: id,
    ...(project !== undefined && { [LABELS.project]: project }),
  };
}

export function installationLabels(installation: string): Record<string, string> {
  return { [LABELS.managedBy]: MANAGER, [LABELS.installation]: installation };
}

/** An autoscaler that would like the node for itself may not take it from under the sandbox. */
export const POD_ANNOTATIONS = { 'cluster-autoscaler.kubernetes.io/safe-to-evict': 'false' };

/** Those pods that the workload has made: a name or a label could be anybody's. */
export function podsOf(workload: Workload, pods: Iterable<Pod>): Pod[] {
  return [...pods].filter((pod) => isOwnedBy(pod, workload));
}

export function isOwnedBy({ metadata }: KubernetesObject, owner: KubernetesObject): boolean {
  return metadata.ownerReferences?.some(({ uid }) => uid === owner.metadata.uid) ?? false;
}
