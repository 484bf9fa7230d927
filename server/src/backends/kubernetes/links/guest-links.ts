/**
 * The links to the guests of pods, each over an exec of the bridge, or over the network of pods if that was
 * asked for.
 */
import { CayError, type Limits, type SandboxId } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Egress } from '../../../egress/egress.ts';
import type { ServerHello } from '../../../guest/connection.ts';
import { directConnection } from '../../../guest/direct-connection.ts';
import type { Guest } from '../../../guest/guest.ts';
import type { GuestLink } from '../../../guest/guest-link.ts';
import { redialling, type RedialOptions } from '../../../guest/redialling-link.ts';
import { cpuCounter } from '../workloads/cpu-counter.ts';
import { bridgeStream } from './bridge-stream.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { guestWithPodEnv } from '../workloads/pod-env.ts';
import type { Pod } from '../client/objects.ts';
import type { SpareStreams } from './spare-streams.ts';

export interface Live {
  readonly pod: string;
  readonly incarnation: number;
  readonly link: GuestLink;
  readonly guest: Guest;
  readonly memoryLimitBytes: number | null;
  readonly diskLimitBytes: number | null;
  /** The processor time that the sandbox has used, from what its guest has read at a moment. */
  cpuUsageMs(readMs: number, atMs: number): number;
  /** The highest number that was read: counters only grow. */
  oomKills: number;
}

export interface OpenOptions extends Omit<ServerHello, 'sandbox'> {
  id: SandboxId;
  pod: Pod;
  limits: Pick<Limits, 'cpus' | 'memoryBytes' | 'diskBytes'>;
  /**
   * Of a guest that is being started: resolves each time that it may be dialled. Until it has answered,
   * the caller that starts it knows whether it ever will, and the cluster is not asked.
   */
  turn?(): Promise<void>;
}

export interface GuestLinks {
  get(id: SandboxId): Live | undefined;
  /** The link to the guest of a running pod, dialled if there is none to this incarnation yet. */
  open(options: OpenOptions): Live;
  /** The same to a pod that is made beside the one of the sandbox. Other calls do not get it. */
  openBeside(options: OpenOptions): Live;
  /** Closes such a link. */
  dismiss(live: Live, reason: string): void;
  /** Makes it the link of the sandbox, in place of another. */
  replace(id: SandboxId, live: Live, reason: string): void;
  hangUp(id: SandboxId, reason: string): void;
  close(): void;
}

export interface GuestLinksOptions {
  client: KubernetesClient;
  namespace: string;
  /** Why a guest will never answer again; `undefined` if it may. */
  whyGone(id: SandboxId, incarnation: number): Promise<string | undefined>;
  /** Streams that are open already. */
  spares: Pick<SpareStreams, 'take'>;
  /** Guests are to be reached directly, over this port of their pods. */
  directPort?: number | undefined;
  egress: Egress | undefined;
  onError(error: unknown): void;
}

export function guestLinks({
  client,
  namespace,
  whyGone,
  spares,
  directPort,
  egress,
  onError,
}: GuestLinksOptions): GuestLinks {
  const live = new Map<SandboxId, Live>();
  const beside = new Set<Live>();
  /**
   * Guests are not reached directly for the same reason, so a failure is reported once, until one was
   * reached.
   */
  let isReported = false;

  /** `starting` is waited for before each attempt, as long as there is one. */
  function waysTo(
    id: SandboxId,
    pod: Pod,
    starting: () => Promise<void> | undefined,
  ): Pick<RedialOptions, 'dial' | 'improve'> {
    const action = `reach the guest of sandbox "${id}"`;
    const dial = async (signal: AbortSignal) => {
      await starting();
      return (
        spares.take(pod.metadata.uid) ??
        bridgeStream(client, { namespace, pod: pod.metadata.name, action, signal })
      );
    };
    const host = pod.status?.podIP;
    if (directPort === undefined || host === undefined) return { dial };
    return directConnection({
      dial,
      host,
      port: directPort,
      onReached: () => (isReported = false),
      onRefused(cause) {
        if (!isReported) onError(notDirectly(id, cause));
        isReported = true;
      },
    });
  }

  function hangUp(id: SandboxId, reason: string): void {
    live.get(id)?.link.close(reason);
    live.delete(id);
  }

  function dialled({ id, pod, limits, turn, ...hello }: OpenOptions): Live {
    const { cpus, memoryBytes, diskBytes } = limits;
    const { incarnation } = hello;
    let starting = turn;
    const link = redialling({
      ...hello,
      ...waysTo(id, pod, () => starting?.()),
      sandbox: id,
      egress: egress && { egress, sandbox: () => id },
      // The caller that opened a link to a pod beside the sandbox knows whether it is still needed.
      whyGone: async () => (starting || beside.has(made) ? undefined : whyGone(id, incarnation)),
    });
    link.ready().then(
      () => (starting = undefined),
      () => {}, // closed: no more dialling
    );
    const made: Live = {
      pod: pod.metadata.uid,
      incarnation,
      link,
      guest: guestWithPodEnv(link),
      memoryLimitBytes: memoryBytes,
      diskLimitBytes: diskBytes,
      cpuUsageMs: cpuCounter(cpus),
      oomKills: 0,
    };
    return made;
  }

  return {
    get: (id) => live.get(id),

    open(options) {
      const { id, pod, incarnation } = options;
      const now = live.get(id);
      if (now && now.pod === pod.metadata.uid && now.incarnation === incarnation) return now;
      hangUp(id, 'it was started again');
      const made = dialled(options);
      live.set(id, made);
      return made;
    },

    openBeside(options) {
      const made = dialled(options);
      beside.add(made);
      return made;
    },

    dismiss(made, reason) {
      made.link.close(reason);
      beside.delete(made);
    },

    replace(id, made, reason) {
      hangUp(id, reason);
      beside.delete(made);
      live.set(id, made);
    },

    hangUp,

    close() {
      for (const { link } of beside) link.close('the server closed the connection');
      for (const id of live.keys()) hangUp(id, 'the server closed the connection');
    },
  };
}

function notDirectly(id: SandboxId, cause: unknown): CayError {
  const said = systemReason(cause);
  return new CayError(
    'unavailable',
    `Cannot reach the guest of sandbox "${id}" over the network of its pod, so it is reached by exec: ${said}`,
    {
      cause,
      hint: 'see whether the server runs in the cluster, and whether a NetworkPolicy lets it reach the port of CAY_KUBERNETES_DIRECT_PORT; or set CAY_KUBERNETES_REACH=exec',
    },
  );
}
