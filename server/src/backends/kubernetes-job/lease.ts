/** Moves the deadlines of Jobs on, by which the cluster would end them if nobody did. */
import { whyOver } from './job-state.ts';
import type { JobGround } from './ground.ts';
import type { JobView } from './job-view.ts';

/** How often in the time of a lease it is looked at. */
const LOOKS = 4;

export interface LeaseKeeping {
  /** At once, and then again and again. Started is done. */
  start(view: JobView): void;
  stop(): void;
}

/** Whatever of ours is there is kept: that nobody wants it any more is for the control plane to say. */
export function leaseKeeping(
  { client, jobs, settings: { leaseSeconds } }: Pick<JobGround, 'client' | 'jobs' | 'settings'>,
  onError: (error: unknown) => void,
): LeaseKeeping {
  let timer: NodeJS.Timeout | undefined;

  async function renew(view: JobView): Promise<void> {
    for (const id of view.ids()) {
      const job = view.find(id)?.job;
      if (!job || whyOver(job)) continue;
      const startedMs = Date.parse(job.status?.startTime ?? job.metadata.creationTimestamp ?? '');
      const leftSeconds = (job.spec?.activeDeadlineSeconds ?? 0) - (client.now() - startedMs) / 1000;
      if (leftSeconds < leaseSeconds * (1 - 0.9 / LOOKS)) await jobs.renew(job, leaseSeconds).catch(onError);
    }
  }

  return {
    start(view) {
      if (timer) return;
      timer = setInterval(() => void renew(view), (leaseSeconds * 1000) / LOOKS).unref();
      void renew(view);
    },
    stop: () => clearInterval(timer),
  };
}
