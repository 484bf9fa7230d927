import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope, Freezing, Observation } from '../../backend.ts';
import { requireSandboxId } from '../../support/check.ts';
import type { ObservationFeed } from '../../support/observation-feed.ts';
import { reachGuest } from '../links/reach-guest.ts';
import { setFrozen } from './set-frozen.ts';
import type { WorkloadContext } from './workload-context.ts';

/** Freezing by the guest, which stops the processes of its pod. */
export function podFreezing(context: WorkloadContext, changes: ObservationFeed): Freezing {
  async function change(id: SandboxId, frozen: boolean, call: CallScope = {}): Promise<void> {
    requireSandboxId(id);
    await changes.changing(id, () => (frozen ? freeze : thaw)(context, id, call));
  }
  return {
    freeze: (id, call) => change(id, true, call),
    thaw: (id, call) => change(id, false, call),
  };
}

async function freeze(context: WorkloadContext, id: SandboxId, call: CallScope): Promise<Observation> {
  const live = await reachGuest(context, id, `freeze sandbox "${id}"`, call);
  return setFrozen(context, id, live, { frozen: true, ...call });
}

export async function thaw(context: WorkloadContext, id: SandboxId, call: CallScope): Promise<Observation> {
  const live = await reachGuest(context, id, `thaw sandbox "${id}"`, call);
  return setFrozen(context, id, live, { frozen: false, ...call });
}
