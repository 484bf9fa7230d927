/**
 * The local backend: sandboxes on this machine, by OCI runtimes, cgroups and snapshots.
 *
 * Each verb has a file of its own and takes the engine, which is put together here. What makes an instance is
 * in `host/`, what is remembered in `sandbox-record.ts` and `snapshot-record.ts`, what is kept ready in
 * `pool.ts`, and what happens when the server starts on resources that an earlier one left in `reconcile.ts`.
 */
import { availableParallelism } from 'node:os';
import type { SandboxId } from '@cay/sdk/protocol';
import { memoryCapacity, pidsCapacity } from '../../host/capacity.ts';
import type { HostResources } from '../../host/host-resources.ts';
import { isAlive, type Instance } from '../../host/instances/instance.ts';
import type { ImageStore } from '../../host/images/image.ts';
import type { Template } from '../../host/templates/template.ts';
import type { VolumeStore } from '../../host/volumes/volume.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import { inBackground } from '../../lib/in-background.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import { DEFAULT_POLICY, usualLimits, type Policy } from '../../policy/policy.ts';
import {
  abilityOf,
  type Backend,
  type Freezing,
  type Hibernating,
  type Measuring,
  type Observation,
  type Orphan,
  type Resizing,
  type Snapshotting,
  type Sweeping,
} from '../backend.ts';
import { requireSandboxId } from '../support/check.ts';
import type { Probeable } from '../probing/probed-backend.ts';
import { abilitiesOn, localCapabilities } from './capabilities.ts';
import { fail, stop, removeSandbox } from './end-instance.ts';
import { newName, quotaOf, requireReady, type Engine } from './engine.ts';
import { ensure } from './ensure.ts';
import { setFrozen } from './freeze.ts';
import { guestOf } from './fit-guest.ts';
import { HeldNames } from './held-names.ts';
import { imageVerbs } from './image-verbs.ts';
import { imageTemplates } from './image-templates.ts';
import { hibernate } from './hibernate.ts';
import type { Images } from './images.ts';
import { instanceMonitor } from './instance-monitor.ts';
import { nameSandboxes } from './name-sandboxes.ts';
import { pickRuntime } from './pick-runtime.ts';
import { Pool } from './pool.ts';
import { preparedTemplates } from './prepared-templates.ts';
import { reconcile } from './reconcile.ts';
import { resize } from './resize.ts';
import { runtimeFingerprint } from './runtime-fingerprint.ts';
import { observationOf, type SandboxRecords } from './sandbox-record.ts';
import type { SnapshotRecords } from './snapshot-record.ts';
import { SpareTrees } from './spare-trees.ts';
import { validate } from './start.ts';
import { spaceOf, statsOf } from './stats.ts';
import { sweep } from './sweep.ts';
import { BackgroundCleanup } from './background-cleanup.ts';
import { timeTravel } from './time-travel.ts';
import { volumeVerbs } from './volume-verbs.ts';
import { discardInstance, makeWarmInstance } from './warm-instance.ts';

export interface LocalOptions {
  resources: HostResources;
  records: SandboxRecords;
  snapshots: SnapshotRecords;
  images: Images;
  templates: Map<string, Template>;
  /** Absent: sandboxes are made from templates alone. */
  imageStore?: ImageStore | undefined;
  /** Absent: there are no volumes. */
  volumes?: VolumeStore | undefined;
  /** The runtime of a sandbox that asks for none; the strongest there is if absent. */
  runtime?: string;
  /** The operator's policy. */
  policy?: Policy;
  /** Sandboxes kept ready; 0 keeps none. */
  poolSize?: number;
  poolTemplate?: string;
  /**
   * Instances started at the same time. Default one for each core: more only makes each slower, and the
   * server too.
   */
  startsAtOnce?: number;
  /** How often what was left behind is looked for while serving. 0, the default, is never. */
  sweepEveryMs?: number;
  /** Called with the orphans that a sweep has removed, at the start and while serving. */
  onSwept?(orphans: Orphan[]): void;
  onError?(error: unknown): void;
  /** Called when the backend was closed, or destroyed with everything that it had. */
  onClosed?(how: 'closed' | 'destroyed'): void | Promise<void>;
}

export interface LocalBackend
  extends Backend, Resizing, Freezing, Snapshotting, Hibernating, Measuring, Sweeping, Probeable {
  /** Resolves when the warm pool has as many as it should. */
  warm(): Promise<void>;
  /** Removes every sandbox and all that the engine keeps on this machine. */
  destroy(): Promise<void>;
}

/** As many as instances that start at once. */
const SPARE_TREES = 4;

export async function localBackend(options: LocalOptions): Promise<LocalBackend> {
  const engine = makeEngine(options);
  const { resources, records, queue, live, pool, spares, changes, backgroundCleanup } = engine;
  const images = options.imageStore && imageVerbs(engine, options.imageStore);
  const volumes = options.volumes && volumeVerbs(engine, options.volumes);
  const swept = await reconcile(engine, { poolSize: options.poolSize ?? 0 });
  if (swept.length > 0) options.onSwept?.(swept);
  // Removes what pulls of an earlier server have left.
  if (options.imageStore) inBackground(options.imageStore.collect(), engine.onError);
  pool.fill();
  let sweeping: Promise<unknown> | undefined;
  const timer = options.sweepEveryMs ? setInterval(sweepAgain, options.sweepEveryMs).unref() : undefined;

  function sweepAgain(): void {
    sweeping ??= sweep(engine)
      .then((orphans) => void (orphans.length > 0 && options.onSwept?.(orphans)))
      .catch(engine.onError)
      .finally(() => {
        sweeping = undefined;
      });
  }

  /** Runs one verb of a sandbox after the one before it. */
  function inOrder<T>(id: SandboxId, verb: () => Promise<T>): Promise<T> {
    requireSandboxId(id);
    return queue.run(id, verb);
  }

  async function letGo(): Promise<Instance[]> {
    engine.closed = true;
    clearInterval(timer);
    await sweeping;
    const waiting = await pool.close();
    await spares.close();
    return waiting;
  }

  const backend: LocalBackend = {
    name: 'local',

    capabilities: () => localCapabilities(engine, options.templates),

    ability(name) {
      const { controllers } = resources.cgroups;
      const checkpoints = [...resources.runtimes.values()].some((runtime) => runtime.checkpoints);
      return abilityOf(
        {
          resize: controllers.cpu && controllers.memory ? this : undefined,
          freeze: controllers.freezer ? this : undefined,
          snapshots: this,
          memorySnapshots: checkpoints ? this : undefined,
          capacity: this,
          space: { spaceOf: (id) => spaceOf(engine, id) },
          sweep: this,
          images,
          volumes,
        },
        name,
      );
    },

    defaultRuntime: async () => (await pickRuntime(engine)).name,
    wired: async (runtime) => (await abilitiesOn(engine, resources.runtimes.get(runtime))).abilities,
    fingerprint: (runtime) => runtimeFingerprint(resources, runtime),

    validate: (spec) => validate(engine, spec),

    ensure: async (id, spec, scope = {}) => inOrder(id, () => ensure(engine, id, spec, scope)),

    async observe(id) {
      requireSandboxId(id);
      const record = records.get(id);
      return record ? observationOf(record) : { id, phase: 'absent', incarnation: 0 };
    },

    list: async () => [...records.all.values()].map(observationOf),

    watch: (watchOptions) => changes.subscribe(watchOptions),

    async connect(id) {
      requireSandboxId(id);
      return guestOf(requireReady(engine, id).instance);
    },

    async stats(id, scope) {
      requireSandboxId(id);
      return statsOf(engine, id, scope);
    },

    stop: async (id, stopOptions = {}) => inOrder(id, () => stop(engine, id, stopOptions)),

    remove: async (id) =>
      inOrder(id, async () => {
        const record = records.get(id);
        if (record) await removeSandbox(engine, record);
        await backgroundCleanup.settled(id);
      }),

    resize: async (id, limits) => inOrder(id, () => resize(engine, id, limits)),

    freeze: async (id) => inOrder(id, async () => void (await setFrozen(engine, id, true))),
    thaw: async (id) => inOrder(id, async () => void (await setFrozen(engine, id, false))),

    hibernate: async (id) => inOrder(id, () => hibernate(engine, id)),

    ...timeTravel(engine),

    capacity: async () => ({
      memory: memoryCapacity(),
      disk: await resources.trees.space(),
      pids: pidsCapacity(),
      pool: { ready: pool.size, wanted: options.poolSize ?? 0 },
    }),

    sweep: (sweepOptions) => sweep(engine, sweepOptions),

    warm: () => pool.full(),

    async close() {
      changes.close();
      // The instances of the pool stay too: the next server takes them up again.
      const waiting = await letGo();
      await Promise.all([...waiting, ...live.values()].map((instance) => instance.link.close()));
      await backgroundCleanup.settled();
      await options.imageStore?.close();
      await resources.trees.close();
      await options.onClosed?.('closed');
    },

    async destroy() {
      await Promise.all((await letGo()).map((instance) => discardInstance(engine, instance)));
      await Promise.all([...records.all.keys()].map((id) => engine.starts.run(() => backend.remove(id))));
      changes.close();
      await options.imageStore?.close();
      await resources.trees.destroy();
      await resources.cgroups.destroy();
      await options.onClosed?.('destroyed');
    },
  };
  return nameSandboxes(backend);
}

/** The orphans that opening the backend would sweep. Nothing is started, adopted, settled or removed. */
export function surveyOrphans(
  options: Pick<LocalOptions, 'resources' | 'records' | 'snapshots' | 'images' | 'templates'>,
): Promise<Orphan[]> {
  return sweep(makeEngine(options), { dryRun: true, alone: true });
}

function makeEngine(options: LocalOptions): Engine {
  const { resources, records, snapshots, images } = options;
  const onError = options.onError ?? (() => {});
  const policy = options.policy ?? DEFAULT_POLICY;
  const usual = usualLimits(policy);
  const startsAtOnce = options.startsAtOnce ?? availableParallelism();
  const watch = instanceMonitor({
    isAlive: (instance) => isAlive(resources, instance.facts),
    isCurrent: (id, instance) => !engine.closed && engine.live.get(id) === instance,
    onEnded: (id, instance) => engine.queue.run(id, () => fail(engine, id, instance)),
    onError,
  });
  const engine: Engine = {
    resources,
    records,
    snapshots,
    images,
    volumes: options.volumes,
    templates: imageTemplates(preparedTemplates(resources, options.templates, onError), {
      known: options.templates,
      store: options.imageStore,
      policy,
    }),
    runtime: options.runtime,
    policy,
    usual,
    queue: new KeyedQueue(),
    snapshotQueue: new KeyedQueue(),
    starts: new Semaphore(startsAtOnce),
    changes: new Broadcast<Observation>(),
    live: new Map(),
    held: new HeldNames(),
    backgroundCleanup: new BackgroundCleanup(onError),
    pool: new Pool({
      size: options.poolSize ?? 0,
      atOnce: startsAtOnce,
      busy: () => engine.foreground > 0,
      onError,
      destroy: (instance) => discardInstance(engine, instance),
      make: (isAwaited) => makeWarmInstance(engine, options.poolTemplate ?? 'base', isAwaited),
    }),
    spares: new SpareTrees({
      trees: resources.trees,
      size: SPARE_TREES,
      newKey: newName.instance,
      quotaBytes: quotaOf(resources, usual),
      onError,
    }),
    keepWatch(id, instance) {
      instance.called = id;
      instance.sandbox = id;
      watch(id, instance);
    },
    onError,
    foreground: 0,
    closed: false,
  };
  return engine;
}
