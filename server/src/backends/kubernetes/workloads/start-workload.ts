/** Makes a sandbox run that was absent, stopped, failed or left half-started. */
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import type { CallOptions, EnsureOptions, Observation } from '../../backend.ts';
import { withDeadline } from '../../../lib/timeout.ts';
import type { Pod } from '../client/objects.ts';
import { dialTimes } from '../links/dial-times.ts';
import type { Live } from '../links/guest-links.ts';
import { containerOf, isAboutToRun, isRunning, whyNotStarting } from './pod-state.ts';
import type { Runtime } from '../runtimes.ts';
import { troubleOf } from './diagnose-events.ts';
import { USER } from '../../support/sandbox-user.ts';
import { startMain } from '../../support/start-main.ts';
import { endWorkload } from './end-workload.ts';
import { standingOf, type Standing } from './workload-status.ts';
import type { WorkloadContext } from './workload-context.ts';
import { isOwnedBy, workloadOptionsOf, type Found, type Workload } from './workload.ts';

/** How long a started guest has to answer. */
export const ANSWER_MS = 30_000;
/** Timeout of one call to a guest that is connected. */
export const GUEST_ANSWER_MS = 10_000;
/** How long a pod may take to start; most of it is for the image. */
const START_MS = 300_000;
/** How long a cluster may look for a node before that is an error. */
const SCHEDULE_MS = 10_000;
const LOOK_AGAIN_MS = 1_000;
/** How long the end of a pod may take. */
const SUSPEND_MS = 60_000;

interface Wanted extends EnsureOptions {
  id: SandboxId;
  spec: SandboxSpec;
  runtime: Runtime;
}

interface Starting extends Wanted {
  incarnation: number;
  hasRun: boolean;
}

interface Seen {
  workload: Workload;
  pod: Pod;
}

/** `before` is what there is of it. When this rejects, what was begun is undone. */
export async function startWorkload(
  context: WorkloadContext,
  before: Found | undefined,
  wanted: Wanted,
): Promise<Observation> {
  const { workloads, links } = context;
  const { id, spec, runtime, project, ...call } = wanted;
  const last = before && standingOf(before.workload);
  const hasRun = last !== undefined && last.mark !== 'starting';
  const incarnation = (last?.incarnation ?? 1) + (hasRun ? 1 : 0);
  // One that is over keeps nothing that could go on, nor does one whose files have ended with its pod.
  const lost = hasRun && !before?.pods.some(goesOn);
  const keepsFiles = before !== undefined && workloads.keepsFiles(before.workload);
  const kept =
    before && (!lost || keepsFiles) && !workloads.whyOver(before.workload) ? before.workload : undefined;
  try {
    if (before && !kept) await endWorkload(context, id, call);
    await faultPoint('kubernetes.start.cleared');
    // A pod that has ended is in the way of the next one.
    if (kept && lost && before && before.pods.length > 0) await suspend(context, kept, id, { incarnation });
    if (kept && hasRun) await workloads.note(kept, { incarnation, mark: 'starting', restarts: 0 }, call);
    const workload =
      kept ??
      (await workloads.create(id, spec, incarnation, {
        ...workloadOptionsOf(context, spec, runtime),
        project,
        ...call,
      }));
    await faultPoint('kubernetes.start.begun');
    return await finish(context, workload, { ...wanted, incarnation, hasRun: kept !== undefined && hasRun });
  } catch (error) {
    if (context.closing.aborted) throw error;
    links.hangUp(id, 'it could not be started');
    if (!kept) await endWorkload(context, id);
    else {
      const now = await workloads.find(id).catch(() => undefined);
      const standing = {
        incarnation,
        mark: 'stopped',
        pod: now?.pods.at(-1)?.metadata.uid,
        restarts: 0,
      } as const;
      await workloads.note(now?.workload ?? kept, standing).catch(() => {});
    }
    throw error;
  }
}

/** Has the pod ended of a sandbox whose files are kept apart from it, and waits until it is gone. */
export async function suspend(
  { workloads, looking }: WorkloadContext,
  workload: Workload,
  id: SandboxId,
  standing: Pick<Standing, 'incarnation' | 'suspended'>,
): Promise<void> {
  await workloads.note(workload, { ...standing, mark: 'stopped', restarts: 0 });
  await faultPoint('kubernetes.suspend.recorded');
  const options = { action: `stop sandbox "${id}"`, withinMs: SUSPEND_MS, everyMs: LOOK_AGAIN_MS };
  const isDone = (found: Found | undefined) =>
    found && found.pods.length === 0 && standingOf(found.workload).mark === 'stopped';
  await (await looking()).until(id, (found) => isDone(found) || undefined, options);
}

/** Waits for the guest of a workload that was made or is to go on, and notes that it is ready. */
async function finish(context: WorkloadContext, made: Workload, wanted: Starting): Promise<Observation> {
  const { workloads, looking } = context;
  const { id, spec, runtime, incarnation, hasRun, signal } = wanted;
  const call = { signal };
  const found = await answering(context, made, wanted);
  const { guest } = found;
  let { pod } = found;
  // The home is made with the pod.
  if (!spec.readOnlyRoot && spec.workdir !== '/' && spec.workdir !== USER.home)
    await guest.files(USER.name).mkdir(spec.workdir, withDeadline(call, GUEST_ANSWER_MS));
  await startMain(guest, spec, withDeadline(call, GUEST_ANSWER_MS));
  await faultPoint('kubernetes.start.prepared');
  // A watch may be behind: how often the container was started again has to be right, or the next look takes
  // it for a crash.
  if (hasRun)
    pod =
      (await workloads.find(id, call))?.pods.find(({ metadata }) => metadata.uid === pod.metadata.uid) ?? pod;
  const restarts = containerOf(pod)?.restartCount ?? 0;
  const standing = { incarnation, mark: 'ready', pod: pod.metadata.uid, restarts } as const;
  await workloads.note(found.workload, standing, call);
  await faultPoint('kubernetes.start.recorded');
  // What is told from now on must not be older than this.
  await (
    await looking()
  ).until(id, (seen) => (seen && standingOf(seen.workload).mark === 'ready') || undefined, {
    action: `start sandbox "${id}"`,
    withinMs: ANSWER_MS,
    everyMs: LOOK_AGAIN_MS,
  });
  // Nobody has to wait for this: renewing the lease repeats it.
  void workloads.settled?.(found.workload, standing).catch(() => {});
  return { id, phase: 'ready', incarnation, uid: found.workload.metadata.uid, runtime: runtime.name };
}

/** Waits for a pod of the workload whose guest answers. */
async function answering(
  context: WorkloadContext,
  made: Workload,
  wanted: Starting,
): Promise<Seen & Pick<Live, 'guest'>> {
  const { id, spec, runtime, incarnation, hasRun, signal: given } = wanted;
  const call = { signal: given };
  const { limits } = spec;
  // Of a container that is started again only its node knows how often it was, which has to be right.
  const isBegun = (pod: Pod) => isRunning(pod) || (!hasRun && isAboutToRun(pod));
  const begun = await until(context, made, { id, hasRun, ...call, is: isBegun });
  await faultPoint('kubernetes.start.running');
  const enough = new AbortController();
  const signal = given ? AbortSignal.any([given, enough.signal]) : enough.signal;
  const early = !isRunning(begun.pod);
  const running = early
    ? until(context, made, { id, hasRun, signal, is: isRunning })
    : Promise.resolve(begun);
  const { link, guest } = context.links.open({
    id,
    pod: begun.pod,
    incarnation,
    limits,
    openFilesLimit: limits.openFiles,
    ...(runtime.gvisor && { memoryLimit: limits.memoryBytes, pidsLimit: limits.pids }),
    ...(early && { turn: dialTimes(running) }),
  });
  try {
    const seen = await Promise.race([running, link.ready(call).then(() => undefined)]);
    await link.ready({ ...call, timeoutMs: ANSWER_MS });
    await faultPoint('kubernetes.start.answered');
    return { ...(seen ?? begun), guest };
  } finally {
    running.catch(() => {}); // nobody waits for it any more
    enough.abort();
  }
}

/** Waits for a pod of the workload of which that is true. */
async function until(
  { client, namespace, workloads, looking }: WorkloadContext,
  made: Workload,
  { id, hasRun, signal, is }: CallOptions & { id: SandboxId; hasRun: boolean; is(pod: Pod): boolean },
): Promise<Seen> {
  const action = `start sandbox "${id}"`;
  const startedAt = Date.now();
  const options = { action, withinMs: START_MS, everyMs: LOOK_AGAIN_MS, signal };
  const view = await looking();
  return view.until(
    id,
    async (found) => {
      // What is seen of an earlier one of that name says nothing.
      if (!found || (found.workload.metadata.uid !== made.metadata.uid && !isOwnedBy(found.workload, made)))
        return undefined;
      const { workload, pods } = workloads.given?.(found.workload, view.pods()) ?? found;
      const over = workloads.whyOver(found.workload);
      if (over)
        throw new CayError('unavailable', `Cannot ${action}: ${over.message}`, {
          details: { reason: 'start_failed' },
        });
      const pod = newest(pods.filter(goesOn)) ?? newest(pods);
      if (pod && is(pod)) return { workload, pod };
      const why = pod && whyNotStarting(pod, action, { hasRun });
      const patient = why?.details['reason'] === 'unschedulable' && Date.now() - startedAt < SCHEDULE_MS;
      if (why && !patient) throw why;
      const stuck = workloads.whyStuck?.(workload, action, Date.now() - startedAt > SCHEDULE_MS);
      if (stuck) throw stuck;
      if (Date.now() - startedAt < LOOK_AGAIN_MS) return undefined;
      const trouble = await troubleOf(client, {
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

/** Runs, or may still come to. */
function goesOn({ metadata, status }: Pod): boolean {
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
