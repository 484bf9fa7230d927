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
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { Semaphore } from '../../lib/semaphore.ts';
import { withDeadline } from '../../lib/timeout.ts';
import {
  abilityOf,
  type Backend,
  type CallScope,
  type Freezing,
  type Observation,
  type Orphan,
  type Suspending,
  type Sweeping,
} from '../backend.ts';
import { requireSandboxId, requireWanted } from '../support/check.ts';
import { observationFeed } from '../support/observation-feed.ts';
import { hashOf } from '../support/spec-hash.ts';
import { ANNOTATIONS } from './client/names.ts';
import { bridgeStream } from './links/bridge-stream.ts';
import { guestLinks } from './links/guest-links.ts';
import { reachGuest } from './links/reach-guest.ts';
import { spareStreams } from './links/spare-streams.ts';
import type { NamespaceScope } from './namespace-scope.ts';
import { podAdmission } from './pod-admission.ts';
import type { PodBackendKind } from './pod-kind.ts';
import { checkSettings, type KubernetesSettings } from './settings.ts';
import { keepTenancy } from './tenancy/reconcile-tenancy.ts';
import { endWorkload } from './workloads/end-workload.ts';
import { podAbilitiesOf } from './workloads/pod-abilities.ts';
import { leaseRenewal } from './workloads/renew-leases.ts';
import { setFrozen } from './workloads/set-frozen.ts';
import { GUEST_ANSWER_MS, startWorkload } from './workloads/start-workload.ts';
import { stopWorkload, type Ending } from './workloads/stop-workload.ts';
import { sweep } from './workloads/sweep.ts';
import type { WorkloadContext } from './workloads/workload-context.ts';
import { absent, observationOf } from './workloads/workload-state.ts';
import { workloadView } from './workloads/workload-view.ts';
import type { Found } from './workloads/workload.ts';

export interface PodBackendOptions extends KubernetesSettings {
  /** Sandboxes started at the same time. Default 32; more makes each slower. */
  startsAtOnce?: number;
  onError?(error: unknown): void;
  /** Called with the orphans that a sweep has removed. */
  onSwept?(orphans: Orphan[]): void;
}

const STOP_SLACK_MS = 5_000;

export function podBackend(kind: PodBackendKind, options: PodBackendOptions, scope: NamespaceScope): Backend {
  const settings = { ...options, ...checkSettings(options) };
  const { installation } = settings;
  const { client, namespace, network } = scope;
  const onError = (error: unknown) => options.onError?.(error);
  const place = { client, namespace, installation, settings };
  const { workloads, ...shared } = kind.in(place);
  const observed = (id: SandboxId, found: Found) => observationOf(id, found, workloads);
  const starts = new Semaphore(options.startsAtOnce ?? 32);
  const changes = observationFeed();
  const leases = leaseRenewal({ workloads, settings }, onError, async () => {
    await shared.renewShared?.();
    const found = await sweeping.sweep();
    if (found.length > 0) options.onSwept?.(found);
  });
  const closing = new AbortController();
  const tenancy = keepTenancy(client, settings, scope, onError);
  const admission = podAdmission({
    kind,
    place,
    scope,
    tenancy,
    prepare: shared.prepare,
    closing: closing.signal,
  });
  /** The initial list makes no change events. */
  let learning = true;

  const spares = spareStreams(({ metadata: { name: pod } }) =>
    bridgeStream(client, {
      namespace,
      pod,
      action: `reach the guest of pod "${pod}"`,
      signal: closing.signal,
      later: true,
    }),
  );
  const links = guestLinks({
    client,
    namespace,
    spares,
    directPort: settings.reach === 'direct' ? settings.directPort : undefined,
    egress: options.egress,
    onError,
    async whyGone(id, incarnation) {
      const { phase, message, incarnation: now } = await look(id);
      if (phase === 'absent') return 'it was removed';
      if (now !== incarnation) return 'it was started again';
      return phase === 'failed' ? (message ?? 'it has failed') : undefined;
    },
  });

  const view = workloadView(client, {
    workloads,
    closing: closing.signal,
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

  async function looking(): Promise<typeof view> {
    await view.start();
    learning = false;
    leases.start(view);
    return view;
  }

  const context: WorkloadContext = {
    client,
    namespace,
    installation,
    settings,
    workloads,
    links,
    looking,
    closing: closing.signal,
  };

  async function look(id: SandboxId, call?: CallScope): Promise<Observation> {
    const found = await workloads.find(id, call);
    return found ? observed(id, found) : absent(id);
  }

  const sweeping: Sweeping = {
    sweep: (call) =>
      sweep(
        {
          client,
          namespace,
          installation,
          workloads,
          others: shared.strays,
          onError,
        },
        call,
      ),
  };

  const freezing: Freezing = {
    async freeze(id, call = {}) {
      requireSandboxId(id);
      await changes.changing(id, async () =>
        setFrozen(context, id, await reachGuest(context, id, `freeze sandbox "${id}"`, call), {
          frozen: true,
          ...call,
        }),
      );
    },

    async thaw(id, call = {}) {
      requireSandboxId(id);
      await changes.changing(id, async () =>
        setFrozen(context, id, await reachGuest(context, id, `thaw sandbox "${id}"`, call), {
          frozen: false,
          ...call,
        }),
      );
    },
  };

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
          ...(kind.freezes && { freeze: freezing }),
          ...(kind.suspends && { suspend: suspending }),
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
        ...podAbilitiesOf(usual, kind),
        ...enforcement,
      };
    },

    async validate(spec) {
      await admission.check(spec);
      await network?.require();
    },

    async ensure(id, spec, call = {}) {
      requireSandboxId(id);
      const runtime = await admission.check(spec);
      requireWanted(call.signal);
      return changes.changing(id, async () => {
        const found = await workloads.find(id, call);
        if (found && found.workload.metadata.annotations?.[ANNOTATIONS.specHash] !== hashOf(spec)) {
          throw new CayError(
            'already_exists',
            `Cannot ensure sandbox "${id}": it was made from a different spec`,
          );
        }
        const now = found && observed(id, found);
        if (now?.frozen)
          return setFrozen(context, id, await reachGuest(context, id, `thaw sandbox "${id}"`, call), {
            frozen: false,
            ...call,
          });
        if (now?.phase === 'ready') return now;
        await network?.require();
        links.hangUp(id, 'it is started again');
        return starts.run(() => startWorkload(context, found, { id, spec, runtime, ...call }));
      });
    },

    async observe(id, call) {
      requireSandboxId(id);
      return look(id, call);
    },

    // Read from the API server each time: a watch may be behind what a verb has just done.
    list: async (call) => (await workloads.list(call)).map((found) => observed(found.id, found)),

    watch(call = {}) {
      const iterator = changes.subscribe(call);
      void looking().catch((error: unknown) => options.onError?.(error));
      return iterator;
    },

    async connect(id, call) {
      requireSandboxId(id);
      return (await reachGuest(context, id, 'connect', call)).guest;
    },

    async stats(id, call = {}) {
      requireSandboxId(id);
      const now = await reachGuest(context, id, `read the stats of sandbox "${id}"`, call);
      const read = await (
        await now.link.ready({ ...call, timeoutMs: STOP_SLACK_MS })
      ).stats(withDeadline(call, GUEST_ANSWER_MS));
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
        return absent(id);
      });
    },

    async close() {
      leases.stop();
      tenancy?.stop();
      closing.abort();
      shared.close?.();
      links.close();
      spares.close();
      changes.close();
    },
  };
}
