/** The Jobs of an installation and their pods as the cluster tells of them, for whoever waits for a change. */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { KubernetesClient } from '../kubernetes/kubernetes-client.ts';
import { mirror } from '../kubernetes/mirror.ts';
import { sandboxOf, selectorOf } from '../kubernetes/names.ts';
import type { Job, KubernetesObject, Pod } from '../kubernetes/objects.ts';
import type { Jobs } from './jobs.ts';
import { podsOf, type Found } from './job-state.ts';

export interface JobView {
  /** Resolves when everything that there is was seen. */
  start(): Promise<void>;
  find(id: SandboxId): Found | undefined;
  ids(): SandboxId[];
  /**
   * Resolves with what `look` makes of the sandbox as soon as that is something, or rejects with what it throws. Looks at once,
   * at every change, and every `everyMs`. Rejects `deadline_exceeded` when the time is over, `unavailable` when the backend is closed.
   */
  until<T>(id: SandboxId, look: (found: Found | undefined) => Promise<T | undefined> | T | undefined, options: UntilOptions): Promise<T>;
}

export interface UntilOptions {
  action: string;
  withinMs: number;
  everyMs: number;
  signal?: AbortSignal;
}

interface ViewOptions {
  installation: string;
  jobs: Jobs;
  /** Ends every wait and the watch. */
  closing: AbortSignal;
  onChange(id: SandboxId): void;
}

export function jobView(client: KubernetesClient, options: ViewOptions): JobView {
  const {
    installation,
    jobs: { paths },
    closing,
    onChange,
  } = options;
  const selector = selectorOf(installation);
  const jobOf = new Map<SandboxId, string>();
  const waiting = new Map<SandboxId, Set<() => void>>();

  function changed(object: KubernetesObject): SandboxId | undefined {
    const id = sandboxOf(object);
    if (id === undefined) return undefined;
    for (const wake of waiting.get(id) ?? []) wake();
    return id;
  }

  const jobs = mirror<Job>(client, {
    path: paths.jobs,
    what: 'sandboxes',
    selector,
    onChange(job, gone) {
      const id = sandboxOf(job);
      if (id === undefined) return;
      if (!gone) jobOf.set(id, job.metadata.uid);
      else if (jobOf.get(id) === job.metadata.uid) jobOf.delete(id);
      changed(job);
      onChange(id);
    },
  });
  const pods = mirror<Pod>(client, {
    path: paths.pods,
    what: 'pods of sandboxes',
    selector,
    onChange(pod) {
      const id = changed(pod);
      if (id !== undefined) onChange(id);
    },
  });

  closing.addEventListener('abort', () => {
    jobs.close();
    pods.close();
    for (const wakers of waiting.values()) for (const wake of wakers) wake();
  });

  function find(id: SandboxId): Found | undefined {
    const job = jobs.objects.get(jobOf.get(id) ?? '');
    return (
      job && {
        job,
        pods: podsOf(
          job,
          [...pods.objects.values()].filter((pod) => sandboxOf(pod) === id),
        ),
      }
    );
  }

  return {
    async start() {
      await Promise.all([jobs.start(), pods.start()]);
    },
    find,
    ids: () => [...jobOf.keys()],

    async until(id, look, { action, withinMs, everyMs, signal }) {
      const deadline = Date.now() + withinMs;
      const wakers = waiting.get(id) ?? new Set();
      waiting.set(id, wakers);
      for (;;) {
        // Armed before the look, so that a change during it is not slept over.
        const { promise, resolve } = Promise.withResolvers<void>();
        wakers.add(resolve);
        const timer = setTimeout(resolve, everyMs);
        const wake = () => resolve();
        signal?.addEventListener('abort', wake, { once: true });
        try {
          if (closing.aborted) throw new CayError('unavailable', `Cannot ${action}: the backend was closed`);
          if (signal?.aborted) throw new CayError('cancelled', `Cannot ${action}: the caller gave up`, { cause: signal.reason });
          const found = await look(find(id));
          if (found !== undefined) return found;
          if (Date.now() > deadline) throw new CayError('deadline_exceeded', `Cannot ${action}: it has taken more than ${withinMs} ms`);
          await promise;
        } finally {
          clearTimeout(timer);
          signal?.removeEventListener('abort', wake);
          wakers.delete(resolve);
          if (wakers.size === 0) waiting.delete(id);
          else waiting.set(id, wakers);
        }
        waiting.set(id, wakers);
      }
    },
  };
}
