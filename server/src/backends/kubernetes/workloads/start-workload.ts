/** Starts a sandbox that was absent, stopped, failed or left half-started. */
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { withDeadline } from '../../../lib/timeout.ts';
import { faultPoint } from '../../../lib/fault-point.ts';
import type { Guest } from '../../../guest/guest.ts';
import type { CallScope, Observation } from '../../backend.ts';
import { USER } from '../../support/sandbox-user.ts';
import { startMain } from '../../support/start-main.ts';
import type { Runtime } from '../runtimes.ts';
import { ANSWER_MS, awaitGuest, LOOK_AGAIN_MS, mayRun, type GuestWanted } from './await-guest.ts';
import { endWorkload } from './end-workload.ts';
import { containerOf } from './pod-state.ts';
import type { WorkloadContext } from './workload-context.ts';
import { statusOf, type WorkloadStatus } from './workload-status.ts';
import { workloadOptionsOf, type Found, type Workload } from './workload.ts';

/** How long a guest may take to answer. A program that took its place may never answer. */
export const GUEST_ANSWER_MS = 10_000;

/** How long the end of a pod may take. */
const SUSPEND_MS = 60_000;

interface Wanted extends CallScope {
  id: SandboxId;
  spec: SandboxSpec;
  runtime: Runtime;
}

/** `before` is the workload that exists. When this rejects, what it began is undone. */
export async function startWorkload(
  context: WorkloadContext,
  before: Found | undefined,
  wanted: Wanted,
): Promise<Observation> {
  const { workloads, links } = context;
  const { id, spec, runtime, project, ...call } = wanted;
  const last = before && statusOf(before.workload);
  const hasRun = last !== undefined && last.mark !== 'starting';
  const incarnation = (last?.incarnation ?? 1) + (hasRun ? 1 : 0);
  // A workload that is over cannot run again, nor can one whose files ended with its pod.
  const lost = hasRun && !before?.pods.some(mayRun);
  const keepsFiles = before !== undefined && workloads.keepsFiles(before.workload);
  const kept =
    before && (!lost || keepsFiles) && !workloads.whyOver(before.workload) ? before.workload : undefined;
  try {
    if (before && !kept) await endWorkload(context, id, call);
    await faultPoint('kubernetes.start.cleared');
    // A pod that has ended keeps the controller from making the next one.
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
      const status = {
        incarnation,
        mark: 'stopped',
        pod: now?.pods.at(-1)?.metadata.uid,
        restarts: 0,
      } as const;
      await workloads.note(now?.workload ?? kept, status).catch(() => {});
    }
    throw error;
  }
}

/** Ends the pod of a sandbox whose files are on a volume, and waits until it is gone. */
export async function suspend(
  { workloads, looking }: WorkloadContext,
  workload: Workload,
  id: SandboxId,
  status: Pick<WorkloadStatus, 'incarnation' | 'suspended'>,
): Promise<void> {
  await workloads.note(workload, { ...status, mark: 'stopped', restarts: 0 });
  await faultPoint('kubernetes.suspend.recorded');
  const options = { action: `stop sandbox "${id}"`, withinMs: SUSPEND_MS, everyMs: LOOK_AGAIN_MS };
  const isDone = (found: Found | undefined) =>
    found && found.pods.length === 0 && statusOf(found.workload).mark === 'stopped';
  await (await looking()).until(id, (found) => isDone(found) || undefined, options);
}

/** The pod is made with the home directory. */
export async function makeWorkdir(guest: Guest, spec: SandboxSpec, call: CallScope): Promise<void> {
  if (!spec.readOnlyRoot && spec.workdir !== '/' && spec.workdir !== USER.home)
    await guest.files(USER.name).mkdir(spec.workdir, withDeadline(call, GUEST_ANSWER_MS));
}

/** Waits for the guest of the workload, and records that it is ready. */
async function finish(context: WorkloadContext, made: Workload, wanted: GuestWanted): Promise<Observation> {
  const { workloads, looking } = context;
  const { id, spec, runtime, incarnation, hasRun, signal } = wanted;
  const call = { signal };
  const found = await awaitGuest(context, made, wanted);
  const { claimed } = found;
  const { guest } = found.live;
  let { pod } = found;
  await makeWorkdir(guest, spec, call);
  await startMain(guest, spec, withDeadline(call, GUEST_ANSWER_MS));
  await faultPoint('kubernetes.start.prepared');
  // A watch may be behind. A wrong restart count would be taken for a crash later.
  if (hasRun)
    pod =
      (await workloads.find(id, call))?.pods.find(({ metadata }) => metadata.uid === pod.metadata.uid) ?? pod;
  const restarts = containerOf(pod)?.restartCount ?? 0;
  const status = { incarnation, mark: 'ready', pod: pod.metadata.uid, restarts } as const;
  if (claimed) await claimed.takeOver(status, call);
  else await workloads.note(found.workload, status, call);
  await faultPoint('kubernetes.start.recorded');
  // The next observations must be at least as new as this one.
  await (
    await looking()
  ).until(id, (seen) => (seen && statusOf(seen.workload).mark === 'ready') || undefined, {
    action: `start sandbox "${id}"`,
    withinMs: ANSWER_MS,
    everyMs: LOOK_AGAIN_MS,
  });
  // Not awaited: if it fails, the renewal of leases repeats it.
  claimed?.settled(status).catch(() => {});
  return { id, phase: 'ready', incarnation, uid: found.workload.metadata.uid, runtime: runtime.name };
}
