/** Has the processes of a sandbox stand still, which only its guest can do, and lets them go on. */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { CallOptions, Observation } from '../../backend.ts';
import { withDeadline } from '../../../lib/timeout.ts';
import type { Live } from '../links/guest-links.ts';
import { standingOf } from './workload-status.ts';
import { ANSWER_MS, GUEST_ANSWER_MS } from './start-workload.ts';
import type { WorkloadContext } from './workload-context.ts';
import { observationOf } from './workload-state.ts';

const LOOK_AGAIN_MS = 1_000;
const UNDO_MS = 3_000;

/**
 * Noted before it stands still and after it goes on, so that whoever comes after a crash finds one to be
 * thawed, and none that is forgotten.
 */
export async function setFrozen(
  context: WorkloadContext,
  id: SandboxId,
  live: Live,
  options: CallOptions & { frozen: boolean },
): Promise<Observation> {
  const { workloads, looking } = context;
  const { frozen, ...call } = options;
  const action = `${frozen ? 'freeze' : 'thaw'} sandbox "${id}"`;
  const found = await workloads.find(id, call);
  if (!found) throw new CayError('not_found', `Cannot ${action}: it does not exist`);
  const before = observationOf(id, found, workloads);
  if (before.phase !== 'ready')
    throw new CayError('failed_precondition', `Cannot ${action}: it is ${before.phase}`);
  const guest = await live.link.ready({ ...call, timeoutMs: ANSWER_MS });
  const standing = standingOf(found.workload);
  const note = (still: boolean) => workloads.note(found.workload, { ...standing, frozen: still }, call);
  if (frozen) {
    await note(true);
    await guest.freeze(withDeadline(call, GUEST_ANSWER_MS)).catch(async (error: unknown) => {
      await guest.thaw(withDeadline({}, UNDO_MS)).catch(() => {});
      await note(standing.frozen ?? false).catch(() => {});
      throw error;
    });
  } else {
    await guest.thaw(withDeadline(call, GUEST_ANSWER_MS));
    await note(false);
  }
  // What is told from now on must not be older than this.
  const seen = (await looking()).until(
    id,
    (now) => (now && (standingOf(now.workload).frozen ?? false) === frozen) || undefined,
    {
      action,
      withinMs: ANSWER_MS,
      everyMs: LOOK_AGAIN_MS,
    },
  );
  await seen;
  const { frozen: _, ...ready } = before;
  return { ...ready, ...(frozen && { frozen }) };
}
