/** What a pod says about the sandbox in it. */
import { CayError, type CayErrorOptions, type ErrorCode } from '@cay/sdk/protocol';
import type { FailureReason } from '../../backend.ts';
import type { ContainerState, ContainerStatus, Pod } from '../client/objects.ts';
import { CONTAINER } from './pod-spec.ts';

export interface Failure {
  reason: FailureReason;
  message: string;
}

/**
 * Why a pod does not start, as an error for the caller that waits; `undefined` while it still may. What has
 * run before may have crashed, and is started again by the kubelet; a guest that ends in its first moments
 * will not do better the next time.
 */
export function whyNotStarting(pod: Pod, action: string, options: { hasRun: boolean }): CayError | undefined {
  const fail = (code: ErrorCode, said: string, options: CayErrorOptions) =>
    new CayError(code, `Cannot ${action}: ${said}`, options);
  const scheduled = pod.status?.conditions?.find(({ type }) => type === 'PodScheduled');
  if (scheduled?.status === 'False' && scheduled.reason === 'Unschedulable') {
    return fail(
      'resource_exhausted',
      `no node has room for it: ${scheduled.message ?? 'it cannot be scheduled'}`,
      {
        details: { reason: 'unschedulable' },
        hint: 'ask for less, remove sandboxes, or add a node',
      },
    );
  }
  for (const status of [
    ...(pod.status?.initContainerStatuses ?? []),
    ...(pod.status?.containerStatuses ?? []),
  ]) {
    const { reason = '', message = '' } = status.state?.waiting ?? {};
    const said = message || reason;
    if (
      /^(ErrImagePull|ImagePullBackOff|ErrImageNeverPull|InvalidImageName|RegistryUnavailable|ImageInspectError)$/.test(
        reason,
      )
    ) {
      return fail('not_found', `the image of "${status.name}" cannot be had: ${said}`, {
        details: { what: 'template', reason: 'image_pull_failed' },
        hint: 'see whether the image exists, and whether the cluster may pull it',
      });
    }
    if (
      /^(CreateContainerConfigError|CreateContainerError|RunContainerError|PreStartHookError)$/.test(reason)
    ) {
      return fail('failed_precondition', `the container "${status.name}" cannot be started: ${said}`, {
        details: { reason: 'start_failed' },
      });
    }
    const ended = status.state?.terminated ?? status.lastState?.terminated;
    if (ended && ended.exitCode !== 0 && !options.hasRun) {
      return fail(
        'unavailable',
        `the container "${status.name}" ended with exit code ${ended.exitCode}: ${ended.message ?? ended.reason ?? ''}`,
        {
          details: { reason: 'start_failed' },
        },
      );
    }
  }
  if (pod.status?.phase === 'Failed' || pod.status?.phase === 'Succeeded') {
    const { phase, reason, message } = pod.status;
    return fail('unavailable', `its pod has ended (${reason ?? phase}): ${message ?? 'no more is known'}`, {
      details: { reason: 'start_failed' },
    });
  }
  return undefined;
}

export function containerOf(pod: Pod): ContainerStatus | undefined {
  return pod.status?.containerStatuses?.find(({ name }) => name === CONTAINER);
}

export function isRunning(pod: Pod): boolean {
  return pod.metadata.deletionTimestamp === undefined && containerOf(pod)?.state?.running !== undefined;
}

/**
 * Whether the node starts the container of the sandbox next, or runs it already and has not reported that.
 */
export function isAboutToRun(pod: Pod): boolean {
  const { metadata, status } = pod;
  const initial = status?.initContainerStatuses ?? [];
  // After a restart the node may not have reported the end of the earlier container yet.
  if (metadata.deletionTimestamp !== undefined || (containerOf(pod)?.restartCount ?? 0) > 0) return false;
  return initial.length > 0 && initial.every(({ state }) => state?.terminated?.exitCode === 0);
}

/**
 * What the kubelet says of a pod that has more than its own limit. A pod that is evicted because its node is
 * short has another message.
 */
const OVER_DISK =
  /^Usage of EmptyDir volume .* exceeds the limit|^Pod ephemeral local storage usage exceeds|^Container .* exceeded its local ephemeral storage limit/;

/** By us, or by its node with a SIGTERM. */
const EXITS_WHEN_TOLD = [0, 143];

/**
 * Why a sandbox does not run in this pod any more. Its container had been started again `restarts` times when
 * the sandbox began to run.
 */
export function failureOf(pod: Pod, restarts: number): Failure | undefined {
  const { phase, reason, message } = pod.status ?? {};
  if (reason === 'Evicted' && OVER_DISK.test(message ?? ''))
    return {
      reason: 'disk_full',
      message: `It wrote more than its disk limit, and its pod was evicted: ${message?.trim()}`,
    };
  if (
    reason === 'Evicted' ||
    reason === 'Preempting' ||
    reason === 'NodeLost' ||
    reason === 'Shutdown' ||
    reason === 'NodeShutdown'
  ) {
    return {
      reason: 'removed_outside',
      message: `Its pod was ended by the cluster (${reason}): ${message ?? ''}`.trim(),
    };
  }
  const target = pod.status?.conditions?.find(
    ({ type, status }) => type === 'DisruptionTarget' && status === 'True',
  );
  if (target)
    return {
      reason: 'removed_outside',
      message:
        `Its pod is ended by the cluster (${target.reason ?? 'disrupted'}): ${target.message ?? ''}`.trim(),
    };
  if (pod.metadata.deletionTimestamp !== undefined)
    return { reason: 'removed_outside', message: 'Its pod is removed from outside' };
  const container = containerOf(pod);
  if (container?.state?.running && container.restartCount <= restarts) {
    // When a node stops answering the cluster only marks its pods as not ready: the last states of their
    // containers stay.
    const statusOf = (name: string) => pod.status?.conditions?.find(({ type }) => type === name)?.status;
    const isUnknown = statusOf('Ready') === 'False' && statusOf('ContainersReady') === 'True';
    return isUnknown ? { reason: 'removed_outside', message: 'Its node does not answer' } : undefined;
  }
  const ended = endedIn(container?.state) ?? endedIn(container?.lastState);
  // The guest was asked to end: the node reports the reason in a moment.
  if (phase === 'Running' && EXITS_WHEN_TOLD.includes(container?.state?.terminated?.exitCode ?? -1))
    return undefined;
  // The guest answers before its node has reported that the container runs.
  if (phase === 'Pending' && container?.restartCount === 0 && !ended && isAboutToRun(pod)) return undefined;
  if (ended?.reason === 'OOMKilled')
    return { reason: 'oom_killed', message: 'The sandbox was out of memory and its guest was killed' };
  if (ended)
    return {
      reason: 'crashed',
      message: `The guest ended with exit code ${ended.exitCode}${ended.reason ? ` (${ended.reason})` : ''}`,
    };
  if (phase === 'Failed' || phase === 'Succeeded')
    return { reason: 'crashed', message: `Its pod has ended: ${message ?? reason ?? phase}` };
  return { reason: 'host_restarted', message: 'Its container is being restarted by the node' };
}

const endedIn = (state: ContainerState | undefined) => state?.terminated;
