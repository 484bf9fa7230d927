import type { SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import type { CallScope } from '../../backend.ts';
import type { WorkloadContext } from './workload-context.ts';

const REMOVE_MS = 120_000;
const LOOK_AGAIN_MS = 1_000;

/** Removes the workload with all that it has, and resolves when it is gone. Absent is done. */
export async function endWorkload(
  { workloads, looking }: WorkloadContext,
  id: SandboxId,
  call: CallScope = {},
): Promise<void> {
  const view = await looking();
  if (!(await workloads.remove(id, call))) return;
  await faultPoint('kubernetes.remove.asked');
  const options = { action: `remove sandbox "${id}"`, withinMs: REMOVE_MS, everyMs: LOOK_AGAIN_MS };
  // The watch may never have reported a short-lived object, so the API server is asked too. After this the
  // view reports no older state.
  await view.until(id, async (found) => (found || (await workloads.exists(id)) ? undefined : true), options);
}
