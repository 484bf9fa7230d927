import type { SandboxId } from '@cay/sdk/protocol';
import type { Observation } from '../../backend.ts';
import { ANNOTATIONS } from '../client/names.ts';
import type { Pod } from '../client/objects.ts';
import { failureOf } from './pod-state.ts';
import { statusOf } from './workload-status.ts';
import type { Found, Workloads } from './workload.ts';

export function absent(id: SandboxId): Observation {
  return { id, phase: 'absent', incarnation: 0 };
}

/** Of a pod as the API server gives it. */
function placeOf({ metadata: { namespace, name }, spec }: Pod): Pick<Observation, 'pod'> {
  if (namespace === undefined) return {};
  return { pod: { namespace, name, ...(spec?.nodeName !== undefined && { node: spec.nodeName }) } };
}

/** What the workload and its pods say about the sandbox. */
export function observationOf(
  id: SandboxId,
  { workload, pods }: Found,
  { whyOver, keepsFiles }: Pick<Workloads, 'whyOver' | 'keepsFiles'>,
): Observation {
  const { incarnation, mark, pod: uid, restarts, frozen, suspended } = statusOf(workload);
  const runtime = workload.metadata.annotations?.[ANNOTATIONS.runtime];
  const seen = { id, incarnation, uid: workload.metadata.uid, ...(runtime !== undefined && { runtime }) };
  const over = whyOver(workload);
  if (over) return { ...seen, phase: 'failed', ...over };
  if (mark === 'starting') return { ...seen, phase: 'starting' };
  const kept = keepsFiles(workload);
  if (mark === 'stopped' && kept) return { ...seen, phase: 'stopped', ...(suspended && { suspended }) };
  const pod = pods.find(({ metadata }) => metadata.uid === uid);
  if (!pod) {
    return {
      ...seen,
      phase: 'failed',
      reason: 'removed_outside',
      message: `Its pod is gone${kept ? '' : ', and its files with it'}`,
    };
  }
  const failure = failureOf(pod, restarts);
  if (mark === 'ready')
    return failure
      ? { ...seen, phase: 'failed', ...failure }
      : { ...seen, phase: 'ready', ...(frozen && { frozen }), ...placeOf(pod) };
  // A guest that was started again has no processes either way. The files are lost only with the pod.
  const ended = failure?.reason === 'removed_outside' || failure?.reason === 'disk_full';
  return ended ? { ...seen, phase: 'failed', ...failure } : { ...seen, phase: 'stopped' };
}
