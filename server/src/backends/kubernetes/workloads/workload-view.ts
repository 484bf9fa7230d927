/**
 * The workloads of an installation and their pods as the cluster reports them, for callers that wait for a
 * change.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { mirror } from '../client/mirror.ts';
import { sandboxOf } from '../client/names.ts';
import type { Pod } from '../client/objects.ts';
import { isOwnedBy, newestOf, podsOf, type Found, type Workload, type Workloads } from './workload.ts';

export interface WorkloadView {
  /** Resolves when every object of the first list was seen. */
  start(): Promise<void>;
  find(id: SandboxId): Found | undefined;
  ids(): SandboxId[];
  /** All pods that are seen, unclaimed pods of a warm pool included. */
  pods(): Pod[];
  /**
   * Resolves with what `look` makes of the sandbox as soon as that is something, or rejects with what it
   * throws. Looks at once, at every change, and every `everyMs`. Rejects `deadline_exceeded` when the time is
   * over, `unavailable` when the backend is closed.
   */
  until<T>(
    id: SandboxId,
    look: (found: Found | undefined) => Promise<T | undefined> | T | undefined,
    options: UntilOptions,
  ): Promise<T>;
}

export interface UntilOptions {
  action: string;
  withinMs: number;
  everyMs: number;
  signal?: AbortSignal;
}

interface ViewOptions {
  workloads: Pick<Workloads, 'collections' | 'pods'>;
  /** Ends every wait and the watch. */
  closing: AbortSignal;
  onChange(id: SandboxId): void;
  /** Called with each unclaimed pod of a warm pool, and when one is `gone`. */
  onSpare(pod: Pod, gone: boolean): void;
}

export function workloadView(
  client: KubernetesClient,
  { workloads, closing, onChange, onSpare }: ViewOptions,
): WorkloadView {
  const waiting = new Map<SandboxId, Set<() => void>>();

  function changed(id: SandboxId): void {
    for (const wake of waiting.get(id) ?? []) wake();
    onChange(id);
  }

  const collections = workloads.collections.map((collection) => {
    /** By sandbox; the one that changed last is the last. */
    const uids = new Map<SandboxId, Set<string>>();
    const { objects, start, close } = mirror<Workload>(client, {
      ...collection,
      onChange(workload, gone) {
        const id = sandboxOf(workload);
        if (id === undefined) return;
        const { uid } = workload.metadata;
        const known = uids.get(id) ?? new Set();
        known.delete(uid);
        if (!gone) known.add(uid);
        if (known.size > 0) uids.set(id, known);
        else uids.delete(id);
        changed(id);
      },
    });
    return { uids, objects, start, close };
  });
  const pods = mirror<Pod>(client, {
    ...workloads.pods,
    onChange(pod, gone) {
      const id = sandboxOf(pod) ?? ownerOf(pod);
      if (id === undefined || gone) onSpare(pod, gone);
      if (id !== undefined) changed(id);
    },
  });

  closing.addEventListener('abort', () => {
    for (const each of [...collections, pods]) each.close();
    for (const wakers of waiting.values()) for (const wake of wakers) wake();
  });

  const ids = () => [...new Set(collections.flatMap(({ uids }) => [...uids.keys()]))];

  function workloadOf(id: SandboxId): Workload | undefined {
    for (const { uids, objects } of collections) {
      const known = [...(uids.get(id) ?? [])].reverse().flatMap((uid) => objects.get(uid) ?? []);
      const found = newestOf(known);
      if (found) return found;
    }
    return undefined;
  }

  /** The sandbox of a pod that came from a warm pool. */
  function ownerOf(pod: Pod): SandboxId | undefined {
    return ids().find((id) => {
      const workload = workloadOf(id);
      return workload && isOwnedBy(pod, workload);
    });
  }

  function find(id: SandboxId): Found | undefined {
    const workload = workloadOf(id);
    return workload && { workload, pods: podsOf(workload, pods.objects.values()) };
  }

  return {
    async start() {
      await Promise.all([...collections, pods].map((each) => each.start()));
    },
    find,
    ids,
    pods: () => [...pods.objects.values()],

    async until(id, look, { action, withinMs, everyMs, signal }) {
      const deadline = Date.now() + withinMs;
      const wakers = waiting.get(id) ?? new Set();
      waiting.set(id, wakers);
      for (;;) {
        // Set before `look`, so that a change during it is not missed.
        const { promise, resolve } = Promise.withResolvers<void>();
        wakers.add(resolve);
        const timer = setTimeout(resolve, everyMs);
        const wake = () => resolve();
        signal?.addEventListener('abort', wake, { once: true });
        try {
          if (closing.aborted) throw new CayError('unavailable', `Cannot ${action}: the backend was closed`);
          if (signal?.aborted)
            throw new CayError('cancelled', `Cannot ${action}: the caller gave up`, { cause: signal.reason });
          const found = await look(find(id));
          if (found !== undefined) return found;
          if (Date.now() > deadline)
            throw new CayError(
              'deadline_exceeded',
              `Cannot ${action}: it has taken more than ${withinMs} ms`,
            );
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
