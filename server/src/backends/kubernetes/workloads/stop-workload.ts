/** Ends the processes of a sandbox, and its pod where the files are kept apart from it. */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { isAway, type Observation, type StopOptions } from '../../backend.ts';
import { limitsOf } from './limits-of.ts';
import { isRunning } from './pod-state.ts';
import { statusOf } from './workload-status.ts';
import { ANSWER_MS } from './await-guest.ts';
import { suspend } from './start-workload.ts';
import type { WorkloadContext } from './workload-context.ts';
import { observationOf } from './workload-state.ts';

export interface Ending extends StopOptions {
  /** It is suspended, and wakes when it is needed. */
  suspended?: boolean;
}

const DEFAULT_GRACE_MS = 10_000;
const STOP_SLACK_MS = 5_000;
const LOOK_AGAIN_MS = 1_000;
const ATTEMPTS = 3;

export async function stopWorkload(
  context: WorkloadContext,
  id: SandboxId,
  { suspended = false, graceMs = DEFAULT_GRACE_MS, ...call }: Ending,
): Promise<Observation> {
  const { workloads, links, looking } = context;
  const action = `${suspended ? 'suspend' : 'stop'} sandbox "${id}"`;
  const find = () => workloads.find(id, call);
  const found = await find();
  if (!found) throw new CayError('not_found', `Cannot ${action}: it does not exist`);
  const { phase, incarnation, runtime, ...now } = observationOf(id, found, workloads);
  const stopped: Observation = {
    id,
    phase: 'stopped',
    incarnation,
    runtime,
    ...(suspended && { suspended }),
  };
  if (phase === 'stopped' && (now.suspended ?? false) === suspended) return stopped;
  if (suspended && phase !== 'ready')
    throw new CayError('failed_precondition', `Cannot ${action}: it is ${phase}`);
  if (workloads.whyOver(found.workload)) return stopped;
  const { pod: ranIn } = statusOf(found.workload);
  // The node may not have reported yet that its container runs.
  const pod = found.pods.find(
    (each) => isRunning(each) || (phase === 'ready' && each.metadata.uid === ranIn),
  );
  const keepsFiles = workloads.keepsFiles(found.workload);
  if (phase !== 'failed' && phase !== 'stopped' && pod) {
    const { link } = links.open({ id, pod, incarnation, limits: limitsOf(found) });
    for (let attempt = 1; ; attempt++) {
      try {
        const guest = await link.ready({ ...call, timeoutMs: STOP_SLACK_MS });
        // The pod stays if it has the files.
        await guest.shutdown(graceMs, { again: !keepsFiles });
        break;
      } catch (error) {
        if (!isAway(error)) throw error;
        // A container that has ended by now has no processes either, and the cluster ends pods that keep no
        // files.
        const later = keepsFiles ? undefined : await find();
        if (keepsFiles || (later && observationOf(id, later, workloads).phase === 'failed')) break;
        // A guest that another call has just shut down hangs up and starts again.
        if (attempt === ATTEMPTS) throw error;
      }
    }
    await faultPoint('kubernetes.stop.ended');
  }
  links.hangUp(id, 'it was stopped');
  if (keepsFiles) {
    await suspend(context, found.workload, id, { incarnation, suspended });
    return stopped;
  }
  const last = pod ?? found.pods.at(-1);
  await workloads.note(
    found.workload,
    { incarnation, mark: 'stopped', pod: last?.metadata.uid, restarts: 0 },
    call,
  );
  await faultPoint('kubernetes.stop.recorded');
  const isSeen = (view: Awaited<ReturnType<typeof find>>) =>
    (view && statusOf(view.workload).mark === 'stopped') || undefined;
  await (await looking()).until(id, isSeen, { action, withinMs: ANSWER_MS, everyMs: LOOK_AGAIN_MS });
  return stopped;
}
