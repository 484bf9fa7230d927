/**
 * A backend whose sandboxes are pods, with our guest as their first process.
 *
 * All state is in the workload that keeps the pod: labels name the sandbox and its incarnation, annotations
 * have the hash of its spec and its status. A new server finds everything by label. Unless the workload keeps
 * files in a volume, they are the pod's: stopping a sandbox ends its processes and keeps the pod, and the
 * kubelet restarts a guest that crashes beside its files.
 *
 * Every workload has a deadline, which the cluster enforces and the server renews while it lives: without a
 * server the pod ends when the lease is over. The guest is reached through one exec stream that carries all
 * our frames, or directly over the pod network.
 */
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { Semaphore } from '../../lib/semaphore.ts';
import {
  abilityOf,
  type Backend,
  type CallScope,
  type Observation,
  type Orphan,
  type Suspending,
  type Sweeping,
} from '../backend.ts';
import { requireSandboxId, requireWanted } from '../support/check.ts';
import { observationFeed } from '../support/observation-feed.ts';
import { reachGuest } from './links/reach-guest.ts';
import type { NamespaceScope } from './namespace-scope.ts';
import { podAdmission } from './pod-admission.ts';
import type { PodBackendKind } from './pod-kind.ts';
import { checkSettings, type KubernetesSettings } from './settings.ts';
import { openTravel, type KeepOptions } from './snapshots/open-travel.ts';
import { keepTenancy } from './tenancy/reconcile-tenancy.ts';
import { findOfSpec } from './workloads/find-of-spec.ts';
import { endWorkload } from './workloads/end-workload.ts';
import { openWorkloadContext } from './workloads/open-workload-context.ts';
import { podFreezing, thaw } from './workloads/pod-freezing.ts';
import { readStats } from './workloads/read-stats.ts';
import { leaseRenewal } from './workloads/renew-leases.ts';
import { startWorkload } from './workloads/start-workload.ts';
import { stopWorkload, type Ending } from './workloads/stop-workload.ts';
import { sweep } from './workloads/sweep.ts';
import { volumeClaims } from './volumes/volume-claims.ts';
import { absent } from './workloads/workload-state.ts';

export interface PodBackendOptions extends KubernetesSettings {
  /** Where snapshots are kept, on the disk of the server. Absent: there are none. */
  keep?: KeepOptions;
  /** Sandboxes started at the same time. Default 32; more makes each slower. */
  startsAtOnce?: number;
  onError?(error: unknown): void;
  /** Called with the orphans that a sweep has removed. */
  onSwept?(orphans: Orphan[]): void;
}

export function podBackend(kind: PodBackendKind, options: PodBackendOptions, scope: NamespaceScope): Backend {
  const settings = { ...options, ...checkSettings(options) };
  const { installation } = settings;
  const { client, namespace, network } = scope;
  const onError = (error: unknown) => options.onError?.(error);
  const place = { client, namespace, installation, settings };
  const { workloads, ...shared } = kind.in(place);
  const starts = new Semaphore(options.startsAtOnce ?? 32);
  const changes = observationFeed();
  const leases = leaseRenewal({ workloads, settings }, onError, async () => {
    await shared.renewShared?.();
    const found = await sweeping.sweep();
    if (found.length > 0) options.onSwept?.(found);
  });
  const closing = new AbortController();
  const tenancy = keepTenancy(client, settings, scope, onError);
  const abilities = { ...kind, snapshots: options.keep !== undefined };
  const admission = podAdmission({
    kind: abilities,
    place,
    scope,
    tenancy,
    prepare: shared.prepare,
    closing: closing.signal,
  });
  const { context, look, observed, ...opened } = openWorkloadContext({
    ...place,
    workloads,
    changes,
    closing: closing.signal,
    onError,
    onLooking: leases.start,
  });
  const { links } = context;
  const volumes = volumeClaims({
    ...place,
    volumes: settings.volumes,
    workloads,
    prepare: () => admission.runtimes(),
  });

  const parts = { context, admission, starts, changes, network, observed, ensure, volumes };
  const travel = options.keep && openTravel(kind, { ...options.keep, ...parts });
  const sweeping: Sweeping = {
    async sweep(call) {
      const others = async () => [
        ...((await shared.orphans?.()) ?? []),
        ...((await travel?.leftOver(call)) ?? []),
        ...(await volumes.leftOver(call)),
      ];
      return sweep({ client, namespace, installation, workloads, others, onError }, call);
    },
  };
  const freezing = podFreezing(context, changes);

  /** Called while the sandbox is being changed. */
  async function ensure(id: SandboxId, spec: SandboxSpec, call: CallScope = {}): Promise<Observation> {
    const runtime = await admission.check(spec);
    const found = await findOfSpec(workloads, id, spec, call);
    await travel?.specs.keep(id, spec);
    const now = found && observed(id, found);
    if (now?.frozen) return thaw(context, id, call);
    if (now?.phase === 'ready') return now;
    await volumes.requireAll(spec, call);
    await network?.require();
    links.hangUp(id, 'it is started again');
    return starts.run(() => startWorkload(context, found, { id, spec, runtime, ...call }));
  }

  async function end(id: SandboxId, ending: Ending = {}): Promise<Observation> {
    requireSandboxId(id);
    return changes.changing(id, () => stopWorkload(context, id, ending));
  }

  const suspending: Suspending = { suspend: (id, call) => end(id, { ...call, suspended: true }) };

  return {
    name: kind.name,

    ability: (name) =>
      abilityOf(
        {
          sweep: sweeping,
          volumes,
          ...(kind.freezes && { freeze: freezing }),
          ...(kind.suspends && { suspend: suspending }),
          ...(travel && { snapshots: travel.snapshots }),
        },
        name,
      ),

    async capabilities() {
      const known = await admission.runtimes();
      const usual = known.pick();
      const templates = ['base', ...Object.keys(options.templates ?? {})];
      const enforcement = network && { enforcement: { network: network.current } };
      return {
        backend: kind.name,
        runtimes: known.names,
        templates,
        ...admission.abilitiesOf(usual),
        ...enforcement,
      };
    },

    async validate(spec, call) {
      await admission.check(spec);
      await volumes.requireAll(spec, call);
      await network?.require();
    },

    ensure: async (id, spec, call) => {
      requireSandboxId(id);
      await admission.check(spec);
      requireWanted(call?.signal);
      return changes.changing(id, () => ensure(id, spec, call));
    },

    async observe(id, call) {
      requireSandboxId(id);
      return look(id, call);
    },

    // Read from the API server each time: a watch may be behind what a verb has just done.
    list: async (call) => (await workloads.list(call)).map((found) => observed(found.id, found)),

    watch(call = {}) {
      const iterator = changes.subscribe(call);
      void context.looking().catch((error: unknown) => options.onError?.(error));
      return iterator;
    },

    async connect(id, call) {
      requireSandboxId(id);
      return (await reachGuest(context, id, 'connect', call)).guest;
    },

    async stats(id, call) {
      requireSandboxId(id);
      return readStats(context, id, call);
    },

    stop: (id, call) => end(id, call),

    async remove(id, call = {}) {
      requireSandboxId(id);
      await changes.changing(id, async () => {
        // Lets the pod end at once; the answer is not awaited.
        const shut = links.get(id)?.link.current?.shutdown(0);
        shut?.catch(() => {});
        const ended = endWorkload(context, id, call);
        links.hangUp(id, 'it was removed');
        await ended;
        await travel?.specs.remove(id);
        return absent(id);
      });
    },

    async close() {
      leases.stop();
      tenancy?.stop();
      closing.abort();
      shared.close?.();
      opened.close();
      changes.close();
    },
  };
}
