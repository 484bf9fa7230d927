/** The Job of a sandbox: what is written, and when it is over. */
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import type { Job } from '../client/objects.ts';
import { volumeLabels } from '../workloads/pod-mounts.ts';
import { podSpec } from '../workloads/pod-spec.ts';
import type { Failure } from '../workloads/pod-state.ts';
import {
  POD_ANNOTATIONS,
  sandboxLabels,
  workloadMetadata,
  type WorkloadOptions,
} from '../workloads/workload.ts';

/** How long a Job that is over stays to be looked at. */
const KEPT_SECONDS = 300;
/**
 * A guest that ends is started again where it is, with its files, however often: only the lease ends a Job.
 */
const RESTARTS = 1_000_000;

export function renderJob(
  id: SandboxId,
  spec: SandboxSpec,
  incarnation: number,
  options: WorkloadOptions,
): object {
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: workloadMetadata(id, spec, incarnation, options),
    spec: jobSpec(
      podSpec(id, spec, options),
      { ...sandboxLabels(id, options), ...volumeLabels(spec) },
      options.leaseSeconds,
    ),
  };
}

/** What every Job of ours has, with these labels on its pod. */
export function jobSpec(pod: object, labels: Record<string, string>, leaseSeconds: number): object {
  return {
    parallelism: 1,
    completions: 1,
    backoffLimit: RESTARTS,
    activeDeadlineSeconds: leaseSeconds,
    ttlSecondsAfterFinished: KEPT_SECONDS,
    template: { metadata: { labels, annotations: POD_ANNOTATIONS }, spec: pod },
  };
}

/** Seconds since the cluster counts its deadline. */
export function usedSeconds({ status, metadata }: Job, nowMs: number): number {
  return Math.max(0, (nowMs - Date.parse(status?.startTime ?? metadata.creationTimestamp ?? '')) / 1000) || 0;
}

/** The deadline that is so many seconds from now. */
export function deadlineIn(leaseSeconds: number, job: Job, nowMs: number): number {
  return Math.ceil(usedSeconds(job, nowMs)) + leaseSeconds;
}

/** Why the Job will never run again; `undefined` while it may. */
export function whyOver({ metadata, status }: Job): Failure | undefined {
  if (metadata.deletionTimestamp !== undefined)
    return { reason: 'removed_outside', message: 'It is being removed from the cluster' };
  for (const { type, status: is, reason, message } of status?.conditions ?? []) {
    if (is !== 'True') continue;
    // The second says so as soon as it is decided, the first when the pods have ended; both stay.
    if (type === 'Failed' || type === 'FailureTarget') {
      if (reason === 'DeadlineExceeded')
        return {
          reason: 'removed_outside',
          message: 'Its lease was not renewed, and the cluster has ended it',
        };
      return { reason: 'crashed', message: message ?? reason ?? 'Its Job has failed' };
    }
    // A guest exits with 0 only when it is asked to, and the guest of a Job that stays is not asked.
    if (type === 'Complete') return { reason: 'removed_outside', message: 'Its pod was ended from outside' };
  }
  return undefined;
}
