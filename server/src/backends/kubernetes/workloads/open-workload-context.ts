/**
 * What the verbs of a backend on Kubernetes share: the view of the cluster, and the links to guests, each of
 * which ends when the view shows that its pod has gone.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../../backend.ts';
import type { ObservationFeed } from '../../support/observation-feed.ts';
import { bridgeStream } from '../links/bridge-stream.ts';
import { guestLinks } from '../links/guest-links.ts';
import { spareStreams } from '../links/spare-streams.ts';
import type { Place } from '../pod-kind.ts';
import type { KubernetesSettings } from '../settings.ts';
import type { WorkloadContext } from './workload-context.ts';
import { absent, observationOf } from './workload-state.ts';
import { workloadView, type WorkloadView } from './workload-view.ts';
import type { Found, Workloads } from './workload.ts';

export interface WorkloadContextOptions extends Place {
  settings: Place['settings'] & KubernetesSettings;
  workloads: Workloads;
  changes: ObservationFeed;
  closing: AbortSignal;
  onError(error: unknown): void;
  /** Called when the view has every object of the first list. */
  onLooking(view: WorkloadView): void;
}

export interface OpenWorkloadContext {
  context: WorkloadContext;
  observed(id: SandboxId, found: Found): Observation;
  /** Asks the API server: a watch may be behind what a verb has just done. */
  look(id: SandboxId, call?: CallScope): Promise<Observation>;
  close(): void;
}

export function openWorkloadContext(options: WorkloadContextOptions): OpenWorkloadContext {
  const { client, namespace, installation, settings, workloads, changes, closing } = options;
  /** The initial list makes no change events. */
  let learning = true;

  const observed = (id: SandboxId, found: Found) => observationOf(id, found, workloads);

  async function look(id: SandboxId, call?: CallScope): Promise<Observation> {
    const found = await workloads.find(id, call);
    return found ? observed(id, found) : absent(id);
  }

  const spares = spareStreams(({ metadata: { name: pod } }) =>
    bridgeStream(client, {
      namespace,
      pod,
      action: `reach the guest of pod "${pod}"`,
      signal: closing,
      later: true,
    }),
  );
  const links = guestLinks({
    client,
    namespace,
    spares,
    directPort: settings.reach === 'direct' ? settings.directPort : undefined,
    egress: settings.egress,
    onError: options.onError,
    async whyGone(id, incarnation) {
      const { phase, message, incarnation: now } = await look(id);
      if (phase === 'absent') return 'it was removed';
      if (now !== incarnation) return 'it was started again';
      return phase === 'failed' ? (message ?? 'it has failed') : undefined;
    },
  });

  const view = workloadView(client, {
    workloads,
    closing,
    onChange(id) {
      const found = view.find(id);
      const observation = found ? observed(id, found) : absent(id);
      if (observation.phase === 'failed' || observation.phase === 'absent')
        links.hangUp(id, observation.message ?? 'it was removed');
      if (learning) changes.learn(observation);
      else changes.see(observation);
    },
    onSpare: spares.see,
  });

  async function looking(): Promise<WorkloadView> {
    await view.start();
    learning = false;
    options.onLooking(view);
    return view;
  }

  return {
    context: {
      client,
      namespace,
      installation,
      settings,
      workloads,
      links,
      looking,
      closing,
      onError: options.onError,
    },
    observed,
    look,
    close() {
      links.close();
      spares.close();
    },
  };
}
