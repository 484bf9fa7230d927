/** The Sandbox of a sandbox: what is written, and what it says about itself. */
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { refusalOf } from '../client/from-kubernetes.ts';
import { volumeLabels } from '../workloads/pod-mounts.ts';
import { podSpec, type PodOptions } from '../workloads/pod-spec.ts';
import type { Failure } from '../workloads/pod-state.ts';
import {
  POD_ANNOTATIONS,
  sandboxLabels,
  workloadMetadata,
  type WorkloadOptions,
} from '../workloads/workload.ts';
import { USER } from '../../support/sandbox-user.ts';
import type { Sandbox, SandboxClaim } from './objects.ts';
import type { PoolAndStorage } from './settings.ts';

export const CORE_VERSION = 'agents.x-k8s.io/v1beta1';

/** The volume of a pod that holds all that is written. */
const FILES = 'files';

export type BlueprintOptions = PodOptions & Pick<PoolAndStorage, 'storage'>;

/** What a Sandbox and a template have in common. */
export function blueprint(
  id: SandboxId | undefined,
  spec: SandboxSpec,
  labels: Record<string, string>,
  options: BlueprintOptions,
): object {
  const { storage } = options;
  const pod = podSpec(id, spec, options) as { securityContext: object };
  return {
    podTemplate: {
      metadata: { labels: { ...labels, ...volumeLabels(spec) }, annotations: POD_ANNOTATIONS },
      // A new volume is empty and belongs to root. `fsGroup` gives it to the group of the pod.
      spec: storage
        ? {
            ...pod,
            securityContext: {
              ...pod.securityContext,
              fsGroup: USER.gid,
              fsGroupChangePolicy: 'OnRootMismatch',
            },
          }
        : pod,
    },
    service: false,
    // Takes the place of the volume of that name in the pod.
    ...(storage && {
      volumeClaimTemplates: [
        {
          metadata: { name: FILES, labels },
          spec: {
            accessModes: ['ReadWriteOnce'],
            resources: { requests: { storage: storage.size } },
            ...(storage.storageClass !== undefined && { storageClassName: storage.storageClass }),
          },
        },
      ],
    }),
  };
}

export function renderSandbox(
  id: SandboxId,
  spec: SandboxSpec,
  incarnation: number,
  options: WorkloadOptions & BlueprintOptions & { nowMs: number },
): object {
  return {
    apiVersion: CORE_VERSION,
    kind: 'Sandbox',
    metadata: workloadMetadata(id, spec, incarnation, options),
    spec: {
      ...blueprint(id, spec, sandboxLabels(id, options), options),
      operatingMode: 'Running',
      shutdownTime: moment(options.nowMs + options.leaseSeconds * 1000),
      shutdownPolicy: 'Delete',
    },
  };
}

/** As the cluster writes it. */
export function moment(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

/** Why it will never run again; `undefined` while it may. */
export function whyOver({ metadata, status }: Sandbox | SandboxClaim): Failure | undefined {
  if (metadata.deletionTimestamp !== undefined)
    return { reason: 'removed_outside', message: 'It is being removed from the cluster' };
  const ready = status?.conditions?.find(({ type }) => type === 'Ready');
  if (ready?.status === 'False' && (ready.reason === 'SandboxExpired' || ready.reason === 'ClaimExpired')) {
    return { reason: 'removed_outside', message: 'Its lease was not renewed, and the cluster has ended it' };
  }
  return undefined;
}

const BROKEN = [
  'ReconcilerError',
  'MultiplePods',
  'TemplateNotFound',
  'WarmPoolNotFound',
  'InvalidMetadata',
  'VolumeClaimTemplatesError',
];

/** Why there is no pod. The controller keeps trying, so the reason may pass. */
export function whyStuck(
  { status }: Sandbox | SandboxClaim,
  action: string,
  lasting: boolean,
): CayError | undefined {
  const ready = status?.conditions?.find(({ type }) => type === 'Ready');
  if (!ready) {
    if (!lasting) return undefined;
    return new CayError('unavailable', `Cannot ${action}: no controller of agent-sandbox has looked at it`, {
      details: { reason: 'controller_missing' },
      hint: 'see whether it runs: kubectl --namespace agent-sandbox-system get pods',
    });
  }
  const { reason = '', message = '' } = ready;
  if (ready.status === 'True' || !BROKEN.includes(reason)) return undefined;
  const known = refusalOf(message);
  if (!known && !lasting) return undefined;
  return new CayError(
    known?.code ?? 'failed_precondition',
    `Cannot ${action}: the cluster refuses its pod: ${message}`,
    {
      details: known?.details ?? { reason: 'admission_refused' },
      hint: known?.hint,
    },
  );
}
