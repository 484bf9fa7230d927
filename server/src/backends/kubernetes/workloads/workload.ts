import type { CayError, SandboxId, SandboxSpec, SnapshotId } from '@cay/sdk/protocol';
import type { CallScope } from '../../backend.ts';
import { hashOf } from '../../support/spec-hash.ts';
import { ANNOTATIONS, LABELS, MANAGER, objectName, sandboxOf } from '../client/names.ts';
import type { KubernetesObject, Pod } from '../client/objects.ts';
import { volumesOf } from './pod-mounts.ts';
import type { PodOptions } from './pod-spec.ts';
import type { Failure } from './pod-state.ts';
import type { Runtime } from '../runtimes.ts';
import { statusOf, statusPatch, type StatusPatch, type WorkloadStatus } from './workload-status.ts';
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
  /** It is made beside the sandbox, or before there is one. */
  beside?: Beside;
}

/** Of a workload that is not that of the sandbox yet. */
export interface Beside {
  name: string;
  maker: string;
  /** The snapshot that its files come from. */
  parent: SnapshotId;
  /** The directories that have the files of that snapshot, and that can be written. */
  directories: readonly string[];
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
   * Writes its status. A workload that keeps files in a volume ends its pod on `stopped`, and makes another
   * on any other mark.
   */
  note(workload: Workload, status: WorkloadStatus, options?: CallScope): Promise<void>;
  /** Seconds until its lease is over. */
  leftSeconds(workload: Workload): number;
  /** Sets its lease to that many seconds from now. */
  renew(workload: Workload, leaseSeconds: number): Promise<void>;
  /** As it is now; `undefined` if it is gone. */
  reread(workload: Workload, options?: CallScope): Promise<Workload | undefined>;
  /**
   * Makes a workload that was made beside a sandbox its own, by one change. Of two that say so the one of the
   * higher incarnation counts.
   */
  adopt(workload: Workload, id: SandboxId, status: WorkloadStatus, options?: CallScope): Promise<void>;
  /** Removes this one, and no other of its sandbox. Resolves when the cluster has begun. */
  removeOne(workload: Workload, options?: CallScope): Promise<void>;
  /** What this maker has made beside sandboxes, and what another has taken the place of. */
  leftOver(maker: string, options?: CallScope): Promise<(Workload & { path: string })[]>;
  /** Asks the cluster to remove it with all that it has. Resolves whether there was one. */
  remove(id: SandboxId, options?: CallScope): Promise<boolean>;
  /** Why it will never run again; `undefined` while it may. */
  whyOver(workload: Workload): Failure | undefined;
  /** Whether its files outlive its pod. */
  keepsFiles(workload: Workload): boolean;
  /** Of a sandbox that is stopped and has no pod: gives it one for a while, or takes it away. */
  setRunning?(workload: Workload, isRunning: boolean, options?: CallScope): Promise<void>;
  /** Why it has no pod, by its own status. `lasting`: for a while already. */
  whyStuck?(workload: Workload, action: string, lasting: boolean): CayError | undefined;
  /** The workload that the cluster has given for this claim, if one of these pods is its pod. */
  claimed?(claim: Workload, pods: Pod[]): Claimed | undefined;
}

/** A workload of a warm pool that was given for a claim, and does not carry our labels yet. */
export interface Claimed extends Found {
  /** In place of `note`: writes our labels too. From then on the workload is found by them. */
  takeOver(status: WorkloadStatus, scope?: CallScope): Promise<void>;
  /** Called when the view has seen that. Writes the same on the claim, which reports a later loss. */
  settled(status: WorkloadStatus): Promise<void>;
}

/** What every object says by which a sandbox is made. */
export function workloadMetadata(
  id: SandboxId,
  spec: SandboxSpec,
  incarnation: number,
  options: Pick<
    WorkloadOptions,
    'namespace' | 'installation' | 'project' | 'specHash' | 'runtime' | 'beside'
  >,
): { name: string; namespace: string; labels: Record<string, string>; annotations: Record<string, string> } {
  const { cpus, memoryBytes, diskBytes } = spec.limits;
  const { beside } = options;
  const volumes = volumesOf(spec);
  const { [LABELS.sandbox]: sandbox, ...others } = sandboxLabels(id, options);
  const whose: Record<string, string> = beside
    ? { [LABELS.next]: sandbox!, [LABELS.maker]: beside.maker }
    : { [LABELS.sandbox]: sandbox! };
  return {
    name: beside?.name ?? objectName(id),
    namespace: options.namespace,
    labels: { ...others, ...whose, [LABELS.incarnation]: String(incarnation) },
    annotations: {
      [ANNOTATIONS.specHash]: options.specHash,
      [ANNOTATIONS.runtime]: options.runtime.name,
      [ANNOTATIONS.mark]: 'starting' satisfies WorkloadStatus['mark'],
      ...(beside && { [ANNOTATIONS.parent]: beside.parent }),
      ...(memoryBytes !== null && { [ANNOTATIONS.memoryBytes]: String(memoryBytes) }),
      ...(cpus !== null && { [ANNOTATIONS.cpus]: String(cpus) }),
      ...(diskBytes !== null && { [ANNOTATIONS.diskBytes]: String(diskBytes) }),
      ...(volumes.length > 0 && { [ANNOTATIONS.volumes]: volumes.join(',') }),
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

/** What makes a workload that was made beside a sandbox its own, as a merge patch. */
export function adoption(id: SandboxId, status: WorkloadStatus): StatusPatch {
  const { labels, annotations } = statusPatch(status).metadata;
  const own = { ...labels, [LABELS.sandbox]: id, [LABELS.next]: null, [LABELS.maker]: null };
  return { metadata: { labels: own, annotations } };
}

/** Of workloads that say they are of one sandbox, the one that is. */
export function newestOf<W extends Workload>(found: readonly W[]): W | undefined {
  return found.toSorted((one, other) => incarnationOf(other) - incarnationOf(one))[0];
}

const incarnationOf = (workload: Workload) => statusOf(workload).incarnation;

/** Those that others have taken the place of. */
export function supersededOf<W extends Workload>(found: readonly W[]): W[] {
  const bySandbox = Map.groupBy(found, (each) => sandboxOf(each));
  return found.filter(
    (each) => sandboxOf(each) !== undefined && newestOf(bySandbox.get(sandboxOf(each))!) !== each,
  );
}

/** An autoscaler that would like the node for itself may not take it from under the sandbox. */
export const POD_ANNOTATIONS = { 'cluster-autoscaler.kubernetes.io/safe-to-evict': 'false' };

/** The pods owned by the workload: any client could set a name or a label. */
export function podsOf(workload: Workload, pods: Iterable<Pod>): Pod[] {
  return [...pods].filter((pod) => isOwnedBy(pod, workload));
}

export function isOwnedBy({ metadata }: KubernetesObject, owner: KubernetesObject): boolean {
  return metadata.ownerReferences?.some(({ uid }) => uid === owner.metadata.uid) ?? false;
}
