/** Waiting for the pod of a workload, and for the guest in it. */
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import type { CallScope } from '../../backend.ts';
import type { Pod } from '../client/objects.ts';
import { dialTimes } from '../links/dial-times.ts';
import type { Live } from '../links/guest-links.ts';
import type { Runtime } from '../runtimes.ts';
import { diagnose } from './diagnose-events.ts';
import { isAboutToRun, isRunning, whyNotStarting } from './pod-state.ts';
import type { WorkloadContext } from './workload-context.ts';
import { isOwnedBy, podsOf, type Claimed, type Found, type Workload } from './workload.ts';

/** How long a started guest has to answer. */
export const ANSWER_MS = 30_000;
export const LOOK_AGAIN_MS = 1_000;
/** How long a pod may take to start; most of it is for the image. */
const START_MS = 300_000;
/** How long a cluster may look for a node before that is an error. */
const SCHEDULE_MS = 10_000;

export interface GuestWanted extends CallScope {
  id: SandboxId;
  spec: SandboxSpec;
  runtime: Runtime;
  incarnation: number;
  /** Its container ran before, and runs again. */
  hasRun: boolean;
  /** It is made beside the sandbox of that id, or before there is one. */
  isBeside?: boolean;
}

export interface Seen {
  workload: Workload;
  pod: Pod;
  /** Set if the workload was just given for a claim. */
  claimed: Claimed | undefined;
}

/** Waits for a pod of the workload whose guest answers. */
export async function awaitGuest(
  context: WorkloadContext,
  made: Workload,
  wanted: GuestWanted,
): Promise<Seen & { live: Live }> {
  const { id, spec, runtime, incarnation, hasRun, isBeside = false, signal: given } = wanted;
  const call = { signal: given };
  const { limits } = spec;
  // The restart count of a container that runs again must be right, and only its node knows it.
  const isBegun = (pod: Pod) => isRunning(pod) || (!hasRun && isAboutToRun(pod));
  const begun = await awaitPod(context, made, { id, hasRun, isBeside, ...call, is: isBegun });
  await faultPoint('kubernetes.start.running');
  const enough = new AbortController();
  const signal = given ? AbortSignal.any([given, enough.signal]) : enough.signal;
  const early = !isRunning(begun.pod);
  const running = early
    ? awaitPod(context, made, { id, hasRun, isBeside, signal, is: isRunning })
    : Promise.resolve(begun);
  const live = (isBeside ? context.links.openBeside : context.links.open)({
    id,
    pod: begun.pod,
    incarnation,
    limits,
    openFilesLimit: limits.openFiles,
    ...(runtime.gvisor && { memoryLimit: limits.memoryBytes, pidsLimit: limits.pids }),
    ...(early && { turn: dialTimes(running) }),
  });
  const { link } = live;
  try {
    const seen = await Promise.race([running, link.ready(call).then(() => undefined)]);
    await link.ready({ ...call, timeoutMs: ANSWER_MS });
    await faultPoint('kubernetes.start.answered');
    return { ...(seen ?? begun), live };
  } catch (error) {
    if (isBeside) context.links.dismiss(live, 'it could not be started');
    throw error;
  } finally {
    running.catch(() => {}); // its result is not needed any more
    enough.abort();
  }
}

/** Waits for a pod of the workload that satisfies `is`. Rejects with the reason once no pod of it can. */
async function awaitPod(
  { client, namespace, workloads, looking }: WorkloadContext,
  made: Workload,
  {
    id,
    hasRun,
    isBeside,
    signal,
    is,
  }: CallScope & Pick<GuestWanted, 'hasRun'> & { id: SandboxId; isBeside: boolean; is(pod: Pod): boolean },
): Promise<Seen> {
  const action = `start sandbox "${id}"`;
  const startedAt = Date.now();
  const options = { action, withinMs: START_MS, everyMs: LOOK_AGAIN_MS, signal };
  const view = await looking();
  /** A workload beside the sandbox is in no view, but its pods are. */
  async function lookBeside(): Promise<Found> {
    const workload = await workloads.reread(made, { signal });
    if (workload) return { workload, pods: podsOf(workload, view.pods()) };
    throw new CayError('unavailable', `Cannot ${action}: what it was to run in was removed`, {
      details: { reason: 'start_failed' },
    });
  }
  return view.until(
    id,
    async (own) => {
      const found = isBeside ? await lookBeside() : own;
      // Ignore an earlier workload of the same name.
      if (!found || (found.workload.metadata.uid !== made.metadata.uid && !isOwnedBy(found.workload, made)))
        return undefined;
      const claimed = workloads.claimed?.(found.workload, view.pods());
      const { workload, pods } = claimed ?? found;
      const over = workloads.whyOver(found.workload);
      if (over)
        throw new CayError('unavailable', `Cannot ${action}: ${over.message}`, {
          details: { reason: 'start_failed' },
        });
      const pod = newest(pods.filter(mayRun)) ?? newest(pods);
      if (pod && is(pod)) return { workload, pod, claimed };
      const why = pod && whyNotStarting(pod, action, { hasRun });
      const patient = why?.details['reason'] === 'unschedulable' && Date.now() - startedAt < SCHEDULE_MS;
      if (why && !patient) throw why;
      const stuck = workloads.whyStuck?.(workload, action, Date.now() - startedAt > SCHEDULE_MS);
      if (stuck) throw stuck;
      if (Date.now() - startedAt < LOOK_AGAIN_MS) return undefined;
      const trouble = await diagnose(client, {
        namespace,
        uid: pod?.metadata.uid ?? workload.metadata.uid,
        action,
        signal,
      });
      if (trouble) throw trouble;
      return undefined;
    },
    options,
  );
}

/** The pod runs, or may still start. */
export function mayRun({ metadata, status }: Pod): boolean {
  return (
    metadata.deletionTimestamp === undefined && status?.phase !== 'Failed' && status?.phase !== 'Succeeded'
  );
}

function newest(pods: Pod[]): Pod | undefined {
  return pods
    .toSorted((one, other) =>
      (one.metadata.creationTimestamp ?? '').localeCompare(other.metadata.creationTimestamp ?? ''),
    )
    .at(-1);
}
