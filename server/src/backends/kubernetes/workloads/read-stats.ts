import type { SandboxId, Stats } from '@cay/sdk/protocol';
import { withDeadline } from '../../../lib/timeout.ts';
import type { CallScope } from '../../backend.ts';
import { reachGuest } from '../links/reach-guest.ts';
import { GUEST_ANSWER_MS } from './start-workload.ts';
import type { WorkloadContext } from './workload-context.ts';

const LINK_MS = 5_000;

/** What the guest reads in its pod. The cluster has no counters of disk and network for a single pod. */
export async function readStats(
  context: WorkloadContext,
  id: SandboxId,
  call: CallScope = {},
): Promise<Stats> {
  const now = await reachGuest(context, id, `read the stats of sandbox "${id}"`, call);
  const guest = await now.link.ready({ ...call, timeoutMs: LINK_MS });
  const read = await guest.stats(withDeadline(call, GUEST_ANSWER_MS));
  now.oomKills = Math.max(now.oomKills, read.oomKills);
  const atMs = Date.now();
  return {
    atMs,
    cpuUsageMs: now.cpuUsageMs(read.cpuUsageMs, atMs),
    memoryBytes: read.memoryBytes,
    memoryLimitBytes: now.memoryLimitBytes,
    pids: read.processes,
    diskBytes: null,
    diskLimitBytes: now.diskLimitBytes,
    networkRxBytes: null,
    networkTxBytes: null,
    diskReadBytes: null,
    diskWriteBytes: null,
    oomKills: now.oomKills,
  };
}
