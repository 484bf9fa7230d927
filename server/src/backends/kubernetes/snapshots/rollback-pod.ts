/**
 * Puts a sandbox back to a snapshot. A workload is made of the snapshot beside the old one, whose processes
 * stand still meanwhile. One change of labels makes the new workload that of the sandbox, and the old one is
 * removed.
 */
import { CayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { ignoreFailure } from '../../../lib/in-background.ts';
import { withDeadline } from '../../../lib/timeout.ts';
import type { Still } from '../../../guest/guest-client.ts';
import { isAway, type CallScope, type Observation } from '../../backend.ts';
import { requireWanted } from '../../support/check.ts';
import { startMain } from '../../support/start-main.ts';
import { ANNOTATIONS } from '../client/names.ts';
import { GUEST_ANSWER_MS } from '../workloads/start-workload.ts';
import { reachGuest } from '../links/reach-guest.ts';
import { BESIDE_FAULTS, makeBeside } from './make-beside.ts';
import type { TravelContext } from './travel-context.ts';

export const ROLLBACK_FAULTS = [...BESIDE_FAULTS, 'kubernetes.rollback.still'] as const;

export async function rollbackPod(
  context: TravelContext,
  id: SandboxId,
  snapshot: SnapshotId,
  scope: CallScope,
): Promise<Observation> {
  const { admission, specs, starts, store, volumes, workloads, links } = context;
  const { signal } = scope;
  const action = `roll sandbox "${id}" back`;
  requireWanted(signal);
  const old = await workloads.find(id, scope);
  if (!old) throw new CayError('not_found', `Cannot ${action}: it does not exist`);
  const from = await store.require(snapshot);
  const { phase, frozen, incarnation } = context.observed(id, old);
  if (phase === 'starting') throw new CayError('failed_precondition', `Cannot ${action}: it is ${phase}`);
  const annotations = old.workload.metadata.annotations ?? {};
  const spec = await specs.read(id, annotations[ANNOTATIONS.specHash]);
  await volumes.requireAll(spec, scope);
  const runtime = (await admission.runtimes()).pick(annotations[ANNOTATIONS.runtime]);
  const isReady = phase === 'ready';
  const project = scope.project;

  return starts.run(async () => {
    const made = await makeBeside(context, {
      id,
      spec,
      runtime,
      incarnation: incarnation + 1,
      from,
      ...scope,
      project,
    });
    let still: Still | undefined;
    try {
      if (isReady && !frozen) still = await holdStill(context, id, scope);
      await faultPoint('kubernetes.rollback.still');
      requireWanted(signal);
      if (isReady) await startMain(made.live.guest, spec, withDeadline(scope, GUEST_ANSWER_MS));
      const observed = await made.adopt(isReady ? 'ready' : 'stopped', {
        ...scope,
        // Ends the processes of the old workload; the answer is not awaited.
        onAdopted: () => void links.get(id)?.link.current?.shutdown(0).catch(ignoreFailure),
      });
      // A workload that cannot be removed now is removed by the sweep.
      await workloads.removeOne(old.workload).catch(ignoreFailure);
      return observed;
    } catch (error) {
      await made.undo('the rollback failed');
      still?.release();
      throw error;
    }
  });
}

/**
 * Stops all processes of the sandbox. Undefined if the guest does not answer: a program may have taken its
 * place, which a rollback can repair.
 */
async function holdStill(
  context: TravelContext,
  id: SandboxId,
  scope: CallScope,
): Promise<Still | undefined> {
  try {
    const call = withDeadline(scope, GUEST_ANSWER_MS);
    const { link } = await reachGuest(context, id, `roll sandbox "${id}" back`, call);
    const guest = await link.ready({ ...call, timeoutMs: GUEST_ANSWER_MS });
    return await guest.still(call);
  } catch (error) {
    requireWanted(scope.signal);
    if (isAway(error)) return undefined;
    throw error;
  }
}
