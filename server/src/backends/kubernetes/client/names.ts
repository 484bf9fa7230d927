/** How our objects are called and marked, whichever kind they are. */
import { isId, type SandboxId, type VolumeId } from '@cay/sdk/protocol';
import type { KubernetesObject } from './objects.ts';

export const LABELS = {
  managedBy: 'app.kubernetes.io/managed-by',
  /** Tells the objects of several servers that share a namespace apart. */
  installation: 'cay.dev/installation',
  sandbox: 'cay.dev/sandbox',
  incarnation: 'cay.dev/incarnation',
  project: 'cay.dev/project',
  /**
   * On a Job that was made for a warm pool: the digest of its pod. It stays when a sandbox claims the Job.
   */
  pool: 'cay.dev/pool',
  /**
   * On a workload that is made beside a sandbox or before there is one: the sandbox that it may become. Lists
   * of sandboxes leave it out until the label `sandbox` replaces this one.
   */
  next: 'cay.dev/next',
  /** The data directory whose server makes it. */
  maker: 'cay.dev/maker',
  /** Of the claim of a named volume. */
  volume: 'cay.dev/volume',
  /** Of such a claim that is being made, and is no volume yet. */
  making: 'cay.dev/making',
  /** Of what the network is tried with, and whose that is. It is no sandbox, and is not looked for as one. */
  probe: 'cay.dev/probe',
  probeOf: 'cay.dev/probe-of',
} as const;

export const ANNOTATIONS = {
  specHash: 'cay.dev/spec-hash',
  /** The mark of its status: `starting`, `ready` or `stopped`. */
  mark: 'cay.dev/mark',
  /** Of the pod that this incarnation runs in. */
  pod: 'cay.dev/pod-uid',
  /** How often the pod's container had been started again when this incarnation began. */
  restarts: 'cay.dev/restarts',
  /** Its processes are stopped. */
  frozen: 'cay.dev/frozen',
  /** It was suspended, and wakes when it is needed. */
  suspended: 'cay.dev/suspended',
  /** The snapshot that its files came from. */
  parent: 'cay.dev/parent',
  runtime: 'cay.dev/runtime',
  memoryBytes: 'cay.dev/memory-bytes',
  cpus: 'cay.dev/cpus',
  diskBytes: 'cay.dev/disk-bytes',
  /** The named volumes that it mounts, with commas. */
  volumes: 'cay.dev/volumes',
} as const;

export const MANAGER = 'cay';

/** A name must not have a `_`. */
export function objectName(id: SandboxId): string {
  return `cay-${id.replace('_', '-')}`;
}

export function volumeClaimName(id: VolumeId): string {
  return `cay-${id.replace('_', '-')}`;
}

/** The namespace of a project's sandboxes, beside that of the installation. */
export function projectNamespace(namespace: string, project: string): string {
  return `${namespace}-${project.replaceAll('_', '-').toLowerCase()}`;
}

/** The sandbox of an object; `undefined` if it is not one of ours. */
export function sandboxOf({ metadata }: KubernetesObject): SandboxId | undefined {
  const id = metadata.labels?.[LABELS.sandbox];
  return isId('sbx', id) ? (id as SandboxId) : undefined;
}

export function selectorOf(installation: string, id?: SandboxId): string {
  return `${LABELS.installation}=${installation}${id === undefined ? `,${LABELS.sandbox}` : `,${LABELS.sandbox}=${id}`}`;
}

/** What is being made beside sandboxes by the server of this data directory. */
export function besideSelector(installation: string, maker: string): string {
  return `${LABELS.installation}=${installation},${LABELS.next},${LABELS.maker}=${maker},!${LABELS.sandbox}`;
}

/** What our manifests and the chart call the pods of the server. */
export const SERVER_LABELS = { 'app.kubernetes.io/name': 'cay', 'app.kubernetes.io/component': 'server' };
