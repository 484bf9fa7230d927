/** Freezes the processes of a sandbox by SIGSTOP, which only its guest can do, and thaws them. */
import { withDeadline } from '../../../lib/timeout.ts';
import { GUEST_ANSWER_MS } from './start-workload.ts';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../../backend.ts';
import type { Live } from '../links/guest-links.ts';
import { statusOf } from './workload-status.ts';
import { ANSWER_MS } from './await-guest.ts';
import type { WorkloadContext } from './workload-context.ts';
import { observationOf } from './workload-state.ts';

const LOOK_AGAIN_MS = 1_000;
const UNDO_MS = 3_000;

/**
 * Recorded before processes stop and after they run again: the next server then finds every sandbox that it
 * has to thaw.
 */
export async function setFrozen(
  context: WorkloadContext,
  id: SandboxId,
  live: Live,
  options: CallScope & { frozen: boolean },
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
  const status = statusOf(found.workload);
  const note = (still: boolean) => workloads.note(found.workload, { ...status, frozen: still }, call);
  if (frozen) {
    await note(true);
    await guest.freeze(withDeadline(call, GUEST_ANSWER_MS)).catch(async (error: unknown) => {
      await guest.thaw(withDeadline({}, UNDO_MS)).catch(() => {});
      await note(status.frozen ?? false).catch(() => {});
      throw error;
    });
  } else {
    await guest.thaw(withDeadline(call, GUEST_ANSWER_MS));
    await note(false);
  }
  // The next observations must be at least as new as this one.
  const seen = (await looking()).until(
    id,
    (now) => (now && (statusOf(now.workload).frozen ?? false) === frozen) || undefined,
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
