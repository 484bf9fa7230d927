/** Renews the deadlines of workloads, after which the cluster ends them. */
import type { WorkloadContext } from './workload-context.ts';
import type { WorkloadView } from './workload-view.ts';
import { inBackground } from '../../../lib/in-background.ts';

/** How many times in the length of a lease the deadlines are checked. */
const LOOKS = 4;

export interface LeaseRenewal {
  /** Starts renewing, at once and then at every interval. Does nothing if it has started. */
  start(view: WorkloadView): void;
  stop(): void;
}

/** Renews every workload of ours: only the control plane knows which are orphans. */
export function leaseRenewal(
  { workloads, settings: { leaseSeconds } }: Pick<WorkloadContext, 'workloads' | 'settings'>,
  onError: (error: unknown) => void,
  /** Further renewals of leases of that length. */
  renewOthers: () => Promise<void> = async () => {},
): LeaseRenewal {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;

  async function renew(view: WorkloadView): Promise<void> {
    await renewOthers().catch(onError);
    for (const id of view.ids()) {
      if (stopped) return;
      const workload = view.find(id)?.workload;
      if (!workload || workloads.whyOver(workload)) continue;
      if (workloads.leftSeconds(workload) < leaseSeconds * (1 - 0.9 / LOOKS))
        await workloads.renew(workload, leaseSeconds).catch(onError);
    }
  }

  return {
    start(view) {
      if (timer) return;
      timer = setInterval(() => inBackground(renew(view), onError), (leaseSeconds * 1000) / LOOKS).unref();
      inBackground(renew(view), onError);
    },
    stop() {
      stopped = true;
      clearInterval(timer);
    },
  };
}
