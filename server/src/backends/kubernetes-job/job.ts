/** The Job of a sandbox: what is written, and what stands in it afterwards. */
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { ANNOTATIONS, LABELS, MANAGER, objectName } from '../kubernetes/names.ts';
import type { Job } from '../kubernetes/objects.ts';
import { podSpec, type PodOptions } from '../kubernetes/pod-spec.ts';
import type { Runtime } from '../kubernetes/runtimes.ts';
import { hashOf } from '../spec-hash.ts';
import type { JobGround } from './ground.ts';

/** How long a Job that is over stays to be looked at. */
const KEPT_SECONDS = 300;
/** A guest that ends is started again where it is, with its files, however often: only the lease ends a Job. */
const RESTARTS = 1_000_000;

export type Mark = 'starting' | 'ready' | 'stopped';

/** What changes about a sandbox while the cluster keeps it. */
export interface Standing {
  incarnation: number;
  mark: Mark;
  /** Of the pod that it runs in; absent until it has run. */
  pod?: string;
  restarts: number;
  /** It is ready, and its processes are stopped. */
  frozen?: boolean;
}

export interface JobOptions extends PodOptions {
  namespace: string;
  installation: string;
  specHash: string;
  leaseSeconds: number;
}

export function jobOptionsOf(
  { settings, namespace, installation }: Pick<JobGround, 'settings' | 'namespace' | 'installation'>,
  spec: SandboxSpec,
  runtime: Runtime,
): JobOptions {
  const { requests, pullPolicy, leaseSeconds } = settings;
  return { settings, requests, pullPolicy, leaseSeconds, namespace, installation, runtime, specHash: hashOf(spec) };
}

export function renderJob(id: SandboxId, spec: SandboxSpec, incarnation: number, options: JobOptions): object {
  const labels = { [LABELS.managedBy]: MANAGER, [LABELS.installation]: options.installation, [LABELS.sandbox]: id };
  const { cpus, memoryBytes } = spec.limits;
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: {
      name: objectName(id),
      namespace: options.namespace,
      labels: { ...labels, [LABELS.incarnation]: String(incarnation) },
      annotations: {
        [ANNOTATIONS.specHash]: options.specHash,
        [ANNOTATIONS.runtime]: options.runtime.name,
        [ANNOTATIONS.mark]: 'starting' satisfies Mark,
        ...(memoryBytes !== null && { [ANNOTATIONS.memoryBytes]: String(memoryBytes) }),
        ...(cpus !== null && { [ANNOTATIONS.cpus]: String(cpus) }),
      },
    },
    spec: {
      parallelism: 1,
      completions: 1,
      backoffLimit: RESTARTS,
      activeDeadlineSeconds: options.leaseSeconds,
      ttlSecondsAfterFinished: KEPT_SECONDS,
      template: {
        metadata: {
          labels,
          // An autoscaler that would like the node for itself may not take it from under the sandbox.
          annotations: { 'cluster-autoscaler.kubernetes.io/safe-to-evict': 'false' },
        },
        spec: podSpec(id, spec, options),
      },
    },
  };
}

const MARKS: readonly string[] = ['starting', 'ready', 'stopped'] satisfies Mark[];

/** What stands in the Job. Somebody who changes it takes from us what it told; it is then taken as new. */
export function standingOf({ metadata }: Job): Standing {
  const annotations = metadata.annotations ?? {};
  const mark = annotations[ANNOTATIONS.mark] ?? '';
  return {
    incarnation: Math.max(1, Math.trunc(Number(metadata.labels?.[LABELS.incarnation])) || 1),
    mark: MARKS.includes(mark) ? (mark as Mark) : 'starting',
    pod: annotations[ANNOTATIONS.pod],
    restarts: Number(annotations[ANNOTATIONS.restarts]) || 0,
    ...(annotations[ANNOTATIONS.frozen] === 'true' && { frozen: true }),
  };
}

/** As a merge patch. */
export function standingPatch({ incarnation, mark, pod, restarts, frozen }: Standing): object {
  return {
    metadata: {
      labels: { [LABELS.incarnation]: String(incarnation) },
      annotations: {
        [ANNOTATIONS.mark]: mark,
        [ANNOTATIONS.pod]: pod ?? null,
        [ANNOTATIONS.restarts]: String(restarts),
        [ANNOTATIONS.frozen]: frozen ? 'true' : null,
      },
    },
  };
}
