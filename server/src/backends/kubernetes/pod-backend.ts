/**
 * A backend whose sandboxes are pods, with our guest as their first process.
 *
 * All that has to be known lives in the workload that keeps the pod: labels say which sandbox and which
 * incarnation it is, annotations from what spec it was made and how it stands. A server that starts anew
 * finds everything by label. Unless the workload keeps files apart they are the pod's: stopping a sandbox
 * ends its processes and keeps the pod, and a guest that crashes is started again by the kubelet beside its
 * files.
 *
 * Every workload has a deadline, which the cluster enforces and the server moves on while it lives: what
 * nobody answers for is gone when the lease is over. The guest is reached through one exec stream that
 * carries all our frames, or directly over the network of pods.
 */
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { Semaphore } from '../../lib/semaphore.ts';
import type {
  Backend,
  CallOptions,
  Freezing,
  Observation,
  Orphan,
  Suspending,
  Sweeping,
} from '../backend.ts';
import { requireSandboxId, requireSpec, requireWanted } from '../support/check.ts';
import { checkSpec } from '../support/check-spec.ts';
import { withDeadline } from '../../lib/timeout.ts';
import { bridgeStream } from './links/bridge-stream.ts';
import { neededRights } from './tenancy/declarations.ts';
import { guestLinks, type Live } from './links/guest-links.ts';
import type { KubernetesClient } from './client/kubernetes-client.ts';
import { ANNOTATIONS } from './client/names.ts';
import type { NetworkEnforcing } from './tenancy/network-enforcement.ts';
import type { ProbeObject, ProbeOptions } from './tenancy/network-probe.ts';
import { podAbilitiesOf, type PodAbilities } from './workloads/pod-abilities.ts';
import { requireServerPolicy } from './tenancy/require-server-policy.ts';
import { requirePrerequisites, type Kind, type Right } from './prerequisites.ts';
import { findRuntimes, runtimeChoice, type Runtime, type RuntimeChoice } from './runtimes.ts';
import { checkSettings, imageOf, type KubernetesSettings } from './settings.ts';
import { news } from '../support/observation-feed.ts';
import { USER } from '../support/sandbox-user.ts';
import { hashOf } from '../support/spec-hash.ts';
import { endWorkload } from './workloads/end-workload.ts';
import { leaseRenewal } from './workloads/renew-leases.ts';
import { setFrozen } from './workloads/set-frozen.ts';
import { spareStreams } from './links/spare-streams.ts';
import { standingOf } from './workloads/workload-status.ts';
import { sweep, type Stray } from './workloads/sweep.ts';
import { limitsOf } from './workloads/limits-of.ts';
import { ANSWER_MS, GUEST_ANSWER_MS, startWorkload } from './workloads/start-workload.ts';
import { stopWorkload, type Ending } from './workloads/stop-workload.ts';
import { keepTenancy } from './tenancy/reconcile-tenancy.ts';
import type { WorkloadContext } from './workloads/workload-context.ts';
import { checkWorkdir } from './workloads/workdir.ts';
import { absent, observationOf } from './workloads/workload-state.ts';
import { workloadView } from './workloads/workload-view.ts';
import type { Found, Workloads } from './workloads/workload.ts';

export interface PodBackendOptions extends KubernetesSettings {
  /** Sandboxes started at the same time; more only makes each slower. */
  startsAtOnce?: number;
  onError?(error: unknown): void;
  /** Told what a sweep while serving took away. */
  onSwept?(orphans: Orphan[]): void;
}

const STOP_SLACK_MS = 5_000;
/** RuntimeClasses come and go. */
const RUNTIMES_MS = 60_000;
/** Who may be asked for: all of them are the one user of a pod. */
const USERS = [USER.name, String(USER.uid), `${USER.name}:${USER.name}`, `${USER.uid}:${USER.gid}`];

/** What tells the backends on Kubernetes apart. */
export interface PodBackendKind extends PodAbilities {
  name: string;
  kinds: Kind[];
  rights: Right[];
  in(place: Place): KindInPlace;
  /** What keeps a pod with which the network is tried. */
  renderProbe(
    probe: Parameters<ProbeOptions['render']>[0],
    place: Pick<Place, 'namespace' | 'client'>,
  ): ProbeObject;
}

export interface KindInPlace {
  workloads: Workloads;
  /** Makes what all sandboxes share, each time that the runtimes were looked at. */
  prepare?(runtime: Runtime): Promise<void>;
  /** What it has made for all sandboxes and nobody needs any more. */
  strays?(): Promise<Stray[]>;
  /** Renews what is shared and has a lease. */
  renewShared?(): Promise<void>;
}

export interface Place {
  client: KubernetesClient;
  namespace: string;
  installation: string;
  settings: WorkloadContext['settings'];
}

/** The namespace that a backend is in, and what is different about it. */
export interface Whereabouts extends Pick<Place, 'client' | 'namespace'> {
  /** Whose namespace it is, with all rights that come with that. Absent: the installation's. */
  project?: string;
  /** Nobody's sandboxes are to be here. */
  vacant?: boolean;
  /** Of the whole cluster, tried where the installation is. */
  network?: NetworkEnforcing | undefined;
}

export function podBackend(
  kind: PodBackendKind,
  options: PodBackendOptions,
  whereabouts: Whereabouts,
): Backend & Sweeping {
  const settings = { ...options, ...checkSettings(options) };
  const { installation } = settings;
  const { client, namespace, project, vacant, network } = whereabouts;
  const { workloads, ...shared } = kind.in({ client, namespace, installation, settings });
  const observed = (id: SandboxId, found: Found) => observationOf(id, found, workloads);
  const starts = new Semaphore(options.startsAtOnce ?? 32);
  const changes = news();
  const leases = leaseRenewal(
    { workloads, settings },
    (error) => options.onError?.(error),
    async () => {
      await shared.renewShared?.();
      const found = await sweeping.sweep();
      if (found.length > 0) options.onSwept?.(found);
    },
  );
  const closing = new AbortController();
  const tenancy = keepTenancy(client, settings, whereabouts, (error) => options.onError?.(error));
  let runtimes: Promise<RuntimeChoice> | undefined;
  /** What is there before anybody looks is no news. */
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
    onError: (error) => options.onError?.(error),
    async whyGone(id, incarnation) {
      const { phase, message, incarnation: now } = await look(id);
      if (phase === 'absent') return 'it was removed';
      if (now !== incarnation) return 'it was started anew';
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

  function knownRuntimes(): Promise<RuntimeChoice> {
    return (runtimes ??= prepare().catch((error: unknown) => {
      runtimes = undefined;
      throw error;
    }));
  }

  async function prepare(): Promise<RuntimeChoice> {
    // The rights in a project's namespace come with it, and are those that were tried in the installation's.
    if (project === undefined) {
      await requirePrerequisites(client, {
        namespace,
        kinds: kind.kinds,
        rights: neededRights(kind.rights, settings),
      });
      if (settings.tenancy?.perProject)
        await requireServerPolicy(client, { installation, signal: closing.signal });
    }
    await tenancy?.ready();
    const found = await findRuntimes(client, options.runtimeClass);
    if (options.runtimeClass !== undefined && !found.has(options.runtimeClass)) {
      throw new CayError(
        'failed_precondition',
        `Cannot use Kubernetes: it has no RuntimeClass "${options.runtimeClass}"`,
        {
          details: { reason: 'runtime_class_missing' },
          hint: `There are: ${[...found.keys()].join(', ')}`,
        },
      );
    }
    const choice = runtimeChoice(found, options);
    const usual = choice.pick();
    if (!vacant) await shared.prepare?.(usual);
    if (project === undefined) network?.begin(usual);
    setTimeout(() => (runtimes = undefined), RUNTIMES_MS).unref();
    return choice;
  }

  /** Refuses what cannot be honoured. Resolves with how the sandbox will run. */
  async function check(spec: SandboxSpec): Promise<Runtime> {
    const known = await knownRuntimes();
    requireSpec(spec);
    const runtime = known.pick(spec.runtime);
    checkSpec(spec, 'Kubernetes', { runtimes: known.names, ...podAbilitiesOf(runtime, kind) });
    imageOf(spec.template, settings);
    checkWorkdir(spec.workdir);
    if (!USERS.includes(spec.user)) {
      throw new CayError(
        'unsupported',
        `Kubernetes cannot run sandboxes as "${spec.user}": everybody in a pod is "${USER.name}"`,
      );
    }
    return runtime;
  }

  async function look(id: SandboxId, call?: CallOptions): Promise<Observation> {
    const found = await workloads.find(id, call);
    return found ? observed(id, found) : absent(id);
  }

  /** The link to a sandbox that must be ready. */
  async function reach(id: SandboxId, action: string, call: CallOptions = {}): Promise<Live> {
    const now = links.get(id);
    if (now?.link.current) return now;
    const found = await workloads.find(id, call);
    if (!found) throw new CayError('not_found', `Cannot ${action}: sandbox "${id}" does not exist`);
    const { phase, message, incarnation } = observed(id, found);
    const pod = found.pods.find(({ metadata }) => metadata.uid === standingOf(found.workload).pod);
    if (phase !== 'ready' || !pod) {
      links.hangUp(id, message ?? `it is ${phase}`);
      throw new CayError(
        'failed_precondition',
        `Cannot ${action}: sandbox "${id}" is ${phase}${message ? ` (${message})` : ''}`,
      );
    }
    // The guest knows its limits from whoever started it.
    const live = links.open({ id, pod, incarnation, limits: limitsOf(found) });
    await live.link.ready({ ...call, timeoutMs: ANSWER_MS });
    return live;
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
          onError: (error) => options.onError?.(error),
        },
        call,
      ),
  };

  const freezing: Freezing = {
    async freeze(id, call = {}) {
      requireSandboxId(id);
      await changes.changing(id, async () =>
        setFrozen(context, id, await reach(id, `freeze sandbox "${id}"`, call), { frozen: true, ...call }),
      );
    },

    async thaw(id, call = {}) {
      requireSandboxId(id);
      await changes.changing(id, async () =>
        setFrozen(context, id, await reach(id, `thaw sandbox "${id}"`, call), { frozen: false, ...call }),
      );
    },
  };

  async function end(id: SandboxId, ending: Ending = {}): Promise<Observation> {
    requireSandboxId(id);
    return changes.changing(id, () => stopWorkload(context, id, ending));
  }

  const suspending: Suspending = { suspend: (id, call) => end(id, { ...call, suspended: true }) };

  return {
    ...(kind.freezes && freezing),
    ...(kind.suspends && suspending),
    ...sweeping,
    name: kind.name,

    async capabilities() {
      const known = await knownRuntimes();
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
      await check(spec);
      await network?.require();
    },

    async ensure(id, spec, call = {}) {
      requireSandboxId(id);
      const runtime = await check(spec);
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
          return setFrozen(context, id, await reach(id, `thaw sandbox "${id}"`, call), {
            frozen: false,
            ...call,
          });
        if (now?.phase === 'ready') return now;
        await network?.require();
        links.hangUp(id, 'it is started anew');
        return starts.run(() => startWorkload(context, found, { id, spec, runtime, ...call }));
      });
    },

    async observe(id, call) {
      requireSandboxId(id);
      return look(id, call);
    },

    // Asked for anew each time: a watch may be a moment behind what a verb has just done.
    list: async (call) => (await workloads.list(call)).map((found) => observed(found.id, found)),

    watch(call = {}) {
      const iterator = changes.subscribe(call);
      void looking().catch((error: unknown) => options.onError?.(error));
      return iterator;
    },

    async connect(id, call) {
      requireSandboxId(id);
      return (await reach(id, 'connect', call)).guest;
    },

    async stats(id, call = {}) {
      requireSandboxId(id);
      const now = await reach(id, `read the stats of sandbox "${id}"`, call);
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
        networkRxBytes: 0,
        networkTxBytes: 0,
        oomKills: now.oomKills,
      };
    },

    stop: (id, call) => end(id, call),

    async remove(id, call = {}) {
      requireSandboxId(id);
      await changes.changing(id, async () => {
        // So that its pod has nothing to wait for.
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
      links.close();
      spares.close();
      changes.close();
    },
  };
}
