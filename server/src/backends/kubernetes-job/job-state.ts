import type { SandboxId } from '@cay/sdk/protocol';
import type { Observation } from '../backend.ts';
import { ANNOTATIONS } from '../kubernetes/names.ts';
import type { Job, Pod } from '../kubernetes/objects.ts';
import { failureOf, type Failure } from '../kubernetes/pod-state.ts';
import { standingOf } from './job.ts';

export interface Found {
  job: Job;
  /** The Job's own, by owner reference. */
  pods: Pod[];
}

export function absent(id: SandboxId): Observation {
  return { id, phase: 'absent', incarnation: 0 };
}

/** Those pods that the Job has made: a name or a label could be anybody's. */
export function podsOf(job: Job, pods: Iterable<Pod>): Pod[] {
  return [...pods].filter(({ metadata }) => metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid));
}

/** Why the Job will never run again; `undefined` while it may. */
export function whyOver({ metadata, status }: Job): Failure | undefined {
  if (metadata.deletionTimestamp !== undefined) return { reason: 'removed_outside', message: 'It is being removed from the cluster' };
  for (const { type, status: is, reason, message } of status?.conditions ?? []) {
    if (is !== 'True') continue;
    // The second says so as soon as it is decided, the first when the pods have ended; both stay.
    if (type === 'Failed' || type === 'FailureTarget') {
      if (reason === 'DeadlineExceeded')
        return { reason: 'removed_outside', message: 'Its lease was not renewed, and the cluster has ended it' };
      return { reason: 'crashed', message: message ?? reason ?? 'Its Job has failed' };
    }
    // A guest ends well only when it is told to, which we do not do to one whose Job is to stay.
    if (type === 'Complete') return { reason: 'removed_outside', message: 'Its pod was ended from outside' };
  }
  return undefined;
}

/** What the Job and its pods say about the sandbox. */
export function observationOf(id: SandboxId, { job, pods }: Found): Observation {
  const { incarnation, mark, pod: uid, restarts, frozen } = standingOf(job);
  const runtime = job.metadata.annotations?.[ANNOTATIONS.runtime];
  const seen = { id, incarnation, ...(runtime !== undefined && { runtime }) };
  const over = whyOver(job);
  if (over) return { ...seen, phase: 'failed', ...over };
  if (mark === 'starting') return { ...seen, phase: 'starting' };
  const pod = pods.find(({ metadata }) => metadata.uid === uid);
  if (!pod) return { ...seen, phase: 'failed', reason: 'removed_outside', message: 'Its pod is gone, and its files with it' };
  const failure = failureOf(pod, restarts);
  if (mark === 'ready') return failure ? { ...seen, phase: 'failed', ...failure } : { ...seen, phase: 'ready', ...(frozen && { frozen }) };
  // A guest that was started again meanwhile has no processes either way; only a pod that ends takes the files along.
  return failure?.reason === 'removed_outside' ? { ...seen, phase: 'failed', ...failure } : { ...seen, phase: 'stopped' };
}
