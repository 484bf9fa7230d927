/**
 * The local backend: sandboxes on this machine, by OCI runtimes, cgroups and snapshots.
 *
 * The verbs are here; what makes an instance is in `host/`, what is remembered in
 * `sandbox-record.ts`, what is kept ready in `pool.ts`, and what happens when the server starts
 * on ground that an earlier one left in `reconcile.ts`.
 */
import { availableParallelism } from 'node:os';
import { CayError, isCayError, LimitsSchema, type Limits, type SandboxId, type SandboxSpec, type Stats } from '@cay/sdk/protocol';
import type { InstanceFacts, Instance } from '../../host/instances/instance.ts';
import {
  claimInstance,
  destroyInstance,
  destroyRemains,
  freezeInstance,
  isAlive,
  limitInstance,
  readInstance,
  startInstance,
} from '../../host/instances/instance.ts';
import type { Ground } from '../../host/instances/ground.ts';
import { shutDownInstance } from '../../host/instances/shut-down.ts';
import { chooseRuntime } from '../../host/runtimes/choose.ts';
import type { Template } from '../../host/templates/template.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { randomName } from '../../lib/random-name.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import type { Backend, Freezing, Observation, Resizing } from '../backend.ts';
import { requireLimits, requireSandboxId, requireSpec, requireWanted, sameSpec } from '../check.ts';
import { startMain } from '../start-main.ts';
import { localCapabilities } from './capabilities.ts';
import { lookout } from './lookout.ts';
import { Pool, poolKeyOf } from './pool.ts';
import { preparedTemplates } from './prepared-templates.ts';
import { reconcile } from './reconcile.ts';
import { rehearse } from './rehearse.ts';
import { requireEnforceable } from './require-enforceable.ts';
import { SpareTrees } from './spare-trees.ts';
import { observationOf, type SandboxRecord, type SandboxRecords } from './sandbox-record.ts';

export interface LocalOptions {
  ground: Ground;
  records: SandboxRecords;
  templates: Map<string, Template>;
  /** The runtime of a sandbox that asks for none; the strongest there is if absent. */
  runtime?: string;
  /** Sandboxes kept ready; 0 keeps none. */
  poolSize?: number;
  poolTemplate?: string;
  /** Instances started at the same time. Default one for each core: more only makes each slower, and the server too. */
  startsAtOnce?: number;
  onError?(error: unknown): void;
  /** Called when the ground was let go of, or does not exist any more. */
  onClosed?(how: 'closed' | 'destroyed'): void | Promise<void>;
}

export interface LocalBackend extends Backend, Resizing, Freezing {
  /** Resolves when the warm pool has as many as it should. */
  warm(): Promise<void>;
  /** Removes every sandbox and all that the engine keeps on this machine. */
  destroy(): Promise<void>;
}

const DEFAULT_GRACE_MS = 10_000;

export async function localBackend(options: LocalOptions): Promise<LocalBackend> {
  const { ground, records } = options;
  const onError = options.onError ?? (() => {});
  const templates = preparedTemplates(ground, options.templates, onError);
  const queue = new KeyedQueue<SandboxId>();
  const starts = new Semaphore(options.startsAtOnce ?? availableParallelism());
  const changes = new Broadcast<Observation>();
  const live = new Map<SandboxId, Instance>();
  let foreground = 0;
  let closed = false;

  const keepWatch = lookout({
    isAlive: (instance) => isAlive(ground, instance.facts),
    isCurrent: (id, instance) => !closed && live.get(id) === instance,
    onEnded: (id, instance) => queue.run(id, () => fail(id, instance)),
    onError,
  });

  const newName = () => `i-${randomName(20)}`;
  const spares = new SpareTrees({ trees: ground.trees, size: SPARE_TREES, newKey: newName, quotaBytes: quotaOf(DEFAULT_LIMITS), onError });

  const pool = new Pool({
    size: options.poolSize ?? 0,
    busy: () => foreground > 0,
    onError,
    destroy: discard,
    async make() {
      const spec = { template: options.poolTemplate ?? 'base' };
      const { facts } = await plan(spec, { pooled: true });
      await clone(facts, { quotaBytes: quotaOf(DEFAULT_LIMITS) });
      let instance: Instance | undefined;
      try {
        instance = await startInstance(ground, facts, DEFAULT_LIMITS);
        await rehearse(instance);
        return { instance, key: poolKeyOf(facts) };
      } catch (error) {
        if (instance) await destroyInstance(ground, instance);
        await ground.trees.remove(facts.tree);
        throw error;
      }
    },
  });

  /** Decides on what a new instance stands. */
  async function plan(
    spec: { template: string; runtime?: string; readOnlyRoot?: boolean; limits?: Limits },
    how: { pooled: boolean; tree?: string },
  ): Promise<{ facts: InstanceFacts }> {
    const runtime = await chooseRuntime([...ground.runtimes.values()], spec.runtime ?? options.runtime);
    const prepared = await templates.prepare(spec.template, runtime.ids);
    const name = newName();
    const facts: InstanceFacts = {
      name,
      runtime: runtime.name,
      template: spec.template,
      templateTree: prepared.tree,
      tree: how.tree ?? name,
      binds: prepared.binds,
      readOnlyRoot: spec.readOnlyRoot ?? false,
      openFiles: spec.limits?.openFiles ?? DEFAULT_LIMITS.openFiles,
      bootId: ground.bootId,
      pooled: how.pooled,
    };
    return { facts };
  }

  /** Makes the tree of an instance. A template that was removed underneath is made anew. */
  async function clone(facts: InstanceFacts, how: { quotaBytes?: number | null } = {}): Promise<void> {
    try {
      await ground.trees.prepare(facts.tree, { parent: facts.templateTree, ...how });
    } catch (error) {
      if (!isCayError(error, 'not_found')) throw error;
      templates.forget(facts.template);
      const { tree, binds } = await templates.prepare(facts.template, ground.runtimes.get(facts.runtime)!.ids);
      Object.assign(facts, { templateTree: tree, binds });
      await ground.trees.prepare(facts.tree, { parent: tree, ...how });
    }
  }

  function quotaOf(limits: Pick<Limits, 'diskBytes'>): number | null | undefined {
    return ground.trees.capabilities.quota ? limits.diskBytes : undefined;
  }

  async function setQuota(tree: string, limits: Limits): Promise<void> {
    if (ground.trees.capabilities.quota) await ground.trees.setQuota(tree, limits.diskBytes);
  }

  async function discard(instance: Instance): Promise<void> {
    await destroyInstance(ground, instance);
    await ground.trees.remove(instance.facts.tree);
  }

  async function save(record: SandboxRecord): Promise<Observation> {
    const before = records.get(record.id);
    await records.save(record);
    const observation = observationOf(record);
    if (before?.phase !== record.phase || before.incarnation !== record.incarnation) changes.send(observation);
    return observation;
  }

  async function fail(id: SandboxId, instance: Instance): Promise<void> {
    const record = records.get(id);
    if (live.get(id) !== instance || !record || record.phase === 'removing') return;
    live.delete(id);
    const oomKills = await instance.cgroup.read().then(
      (reading) => reading.oomKills,
      () => 0,
    );
    // What could not be taken away stays in the record: the next start, stop or removal tries again.
    const left = await destroyInstance(ground, instance).then(
      () => undefined,
      (error: unknown) => (onError(error), record.instance),
    );
    const oom = oomKills > 0;
    await save({
      ...record,
      phase: 'failed',
      instance: left,
      reason: oom ? 'oom_killed' : 'crashed',
      message: oom
        ? 'The sandbox used more memory than its limit and was ended as a whole'
        : 'The first process of the sandbox ended unexpectedly',
    });
  }

  function ready(id: SandboxId): { record: SandboxRecord; instance: Instance } {
    const record = records.get(id);
    if (!record || record.phase === 'removing') throw new CayError('not_found', `Sandbox "${id}" does not exist`);
    const instance = live.get(id);
    if (record.phase !== 'ready' || !instance) {
      // Between the end of its processes and the record of it the phase still says ready.
      throw new CayError('failed_precondition', `Sandbox "${id}" is ${record.phase === 'ready' ? 'ending' : record.phase}`, {
        details: { phase: record.phase, ...(record.reason && { reason: record.reason }) },
      });
    }
    return { record, instance };
  }

  async function validate(spec: SandboxSpec): Promise<void> {
    requireSpec(spec);
    templates.get(spec.template);
    await chooseRuntime([...ground.runtimes.values()], spec.runtime ?? options.runtime);
    requireEnforceable(spec.limits, ground);
  }

  /** Starts an instance, on a new clone if it is `fresh`, when it is its turn. */
  async function startCold(facts: InstanceFacts, limits: Limits, { fresh }: { fresh: boolean }): Promise<Instance> {
    foreground++;
    try {
      return await starts.run(async () => {
        if (fresh) await clone(facts);
        // The quota is there before anybody but the guest is, and nobody waits for it.
        const [started, limited] = await Promise.allSettled([
          startInstance(ground, facts, limits),
          fresh ? setQuota(facts.tree, limits) : undefined,
        ]);
        if (started.status === 'rejected') throw started.reason;
        if (limited.status === 'fulfilled') return started.value;
        await destroyInstance(ground, started.value);
        throw limited.reason;
      });
    } finally {
      foreground--;
    }
  }

  /** Starts a sandbox from nothing or on the files that it has. */
  async function start(
    id: SandboxId,
    spec: SandboxSpec,
    before: SandboxRecord | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Observation> {
    requireWanted(signal);
    await validate(spec);
    if (before) await clear(before);
    const { facts } = await plan(spec, { pooled: false, ...(before && { tree: before.tree }) });
    const poolable = !before && !facts.readOnlyRoot && facts.openFiles === DEFAULT_LIMITS.openFiles;
    const warm = poolable ? pool.take(poolKeyOf(facts)) : undefined;
    const spare = !before && !warm && spec.limits.diskBytes === DEFAULT_LIMITS.diskBytes ? spares.take(facts.templateTree) : undefined;
    if (spare !== undefined) facts.tree = spare;
    if (warm) claimInstance(ground, warm);
    const record: SandboxRecord = {
      id,
      spec,
      phase: 'starting',
      incarnation: (before?.incarnation ?? 0) + 1,
      runtime: facts.runtime,
      instance: (warm?.facts ?? facts).name,
      tree: (warm?.facts ?? facts).tree,
    };
    let instance = warm;
    try {
      await save(record);
      if (instance) {
        await dress(instance, spec.limits);
      } else {
        instance = await startCold(facts, spec.limits, { fresh: !before && spare === undefined });
      }
      requireWanted(signal);
      await startMain(instance.link.guest, spec);
      live.set(id, instance);
      const observation = await save({ ...record, phase: 'ready' });
      keepWatch(id, instance);
      return observation;
    } catch (error) {
      live.delete(id);
      // The caller hears why it could not be started, not what else went wrong after that.
      await undo(record, { before, instance, error: error as Error }).catch(onError);
      throw error;
    }
  }

  /** Takes back what a start had begun. */
  async function undo(
    record: SandboxRecord,
    { before, instance, error }: { before: SandboxRecord | undefined; instance: Instance | undefined; error: Error },
  ): Promise<void> {
    if (instance) await destroyInstance(ground, instance);
    if (before) {
      await save({ ...record, phase: 'failed', instance: undefined, reason: 'start_failed', message: error.message });
      return;
    }
    await ground.trees.remove(record.tree);
    await records.delete(record.id);
    changes.send({ id: record.id, phase: 'absent', incarnation: 0 });
  }

  /** Takes away the instance that a record names, also one that an end cut short has left. */
  async function clear({ id, instance, runtime }: SandboxRecord): Promise<void> {
    const held = live.get(id);
    live.delete(id);
    if (held) await destroyInstance(ground, held);
    else if (instance !== undefined) await destroyRemains(ground, { name: instance, runtime });
  }

  async function takeAway(record: SandboxRecord): Promise<void> {
    // A full disk is no reason to keep what fills it. After a crash halfway the sandbox then has failed, and can still be removed.
    await records.save({ ...record, phase: 'removing' }).catch((error: unknown) => {
      if (!isCayError(error, 'resource_exhausted')) throw error;
    });
    await clear(record);
    await ground.trees.remove(record.tree);
    await records.delete(record.id);
    changes.send({ id: record.id, phase: 'absent', incarnation: 0 });
  }

  /** Fits an instance from the pool to what was asked for. */
  async function dress(instance: Instance, limits: Limits): Promise<void> {
    const same = (key: keyof Limits) => limits[key] === DEFAULT_LIMITS[key];
    const { cpus, memoryBytes, pids } = limits;
    await Promise.all([
      same('cpus') && same('memoryBytes') && same('pids') ? undefined : limitInstance(instance, { cpus, memoryBytes, pids }),
      same('diskBytes') ? undefined : setQuota(instance.facts.tree, limits),
    ]);
  }

  const backend: LocalBackend = {
    name: 'local',

    capabilities: () => localCapabilities(ground, options.templates, options.runtime),

    validate,

    async ensure(id, spec, { signal } = {}) {
      requireSandboxId(id);
      return queue.run(id, async () => {
        if (closed) throw new CayError('unavailable', `Cannot start sandbox "${id}": the backend is closed`);
        const found = records.get(id);
        if (found?.phase === 'removing') await takeAway(found);
        const record = records.get(id);
        if (record && !sameSpec(record.spec, spec)) {
          throw new CayError('already_exists', `Sandbox "${id}" exists already with another spec`);
        }
        if (record?.phase === 'ready' && live.has(id)) return observationOf(record);
        return start(id, record?.spec ?? spec, record, signal);
      });
    },

    async observe(id) {
      requireSandboxId(id);
      const record = records.get(id);
      return record ? observationOf(record) : { id, phase: 'absent', incarnation: 0 };
    },

    list: async () => [...records.all.values()].map(observationOf),

    watch: (watchOptions) => changes.subscribe(watchOptions),

    async connect(id) {
      requireSandboxId(id);
      return ready(id).instance.link.guest;
    },

    async stats(id): Promise<Stats> {
      requireSandboxId(id);
      const { record, instance } = ready(id);
      const [reading, diskBytes] = await Promise.all([readInstance(instance), ground.trees.usage(record.tree)]);
      return {
        atMs: Date.now(),
        ...reading,
        memoryLimitBytes: record.spec.limits.memoryBytes,
        diskBytes,
        diskLimitBytes: record.spec.limits.diskBytes,
        // A sandbox has a loopback device and no other: nothing leaves it but through the guest.
        networkRxBytes: 0,
        networkTxBytes: 0,
      };
    },

    async stop(id, stopOptions = {}) {
      requireSandboxId(id);
      return queue.run(id, async () => {
        const record = records.get(id);
        if (!record || record.phase === 'removing') throw new CayError('not_found', `Sandbox "${id}" does not exist`);
        const instance = live.get(id);
        if (instance) {
          live.delete(id);
          await shutDownInstance(ground, instance, stopOptions.graceMs ?? DEFAULT_GRACE_MS);
          await destroyInstance(ground, instance);
        } else await clear(record);
        if (record.phase === 'stopped') return observationOf(record);
        return save({ ...record, phase: 'stopped', instance: undefined, reason: undefined, message: undefined });
      });
    },

    async remove(id) {
      requireSandboxId(id);
      return queue.run(id, async () => {
        const record = records.get(id);
        if (record) await takeAway(record);
      });
    },

    async resize(id, limits) {
      requireSandboxId(id);
      return queue.run(id, async () => {
        const { record, instance } = ready(id);
        requireLimits(limits);
        const spec = { ...record.spec, limits: { ...record.spec.limits, ...limits } };
        await validate(spec);
        const { cpus, memoryBytes, pids, diskBytes } = limits;
        const before = record.spec.limits;
        try {
          await limitInstance(instance, {
            ...(cpus !== undefined && { cpus }),
            ...(memoryBytes !== undefined && { memoryBytes }),
            ...(pids !== undefined && { pids }),
          });
          if (diskBytes !== undefined) await ground.trees.setQuota(record.tree, diskBytes);
          await records.save({ ...record, spec });
        } catch (error) {
          // All of them change or none.
          await limitInstance(instance, { cpus: before.cpus, memoryBytes: before.memoryBytes, pids: before.pids }).catch(onError);
          if (diskBytes !== undefined) await setQuota(record.tree, before).catch(onError);
          throw error;
        }
      });
    },

    freeze: (id) => queue.run(id, async () => freezeInstance(ready(id).instance, true)),
    thaw: (id) => queue.run(id, async () => freezeInstance(ready(id).instance, false)),

    warm: () => pool.full(),

    async close() {
      closed = true;
      changes.close();
      // The instances of the pool stay too: the next server takes them up again.
      const waiting = await pool.close();
      await spares.close();
      await Promise.all([...waiting, ...live.values()].map((instance) => instance.link.close()));
      await ground.trees.close();
      await options.onClosed?.('closed');
    },

    async destroy() {
      closed = true;
      await Promise.all((await pool.close()).map(discard));
      await spares.close();
      await Promise.all([...records.all.keys()].map((id) => starts.run(() => backend.remove(id))));
      changes.close();
      await ground.trees.destroy();
      await ground.cgroups.destroy();
      await options.onClosed?.('destroyed');
    },
  };

  await reconcile({
    ground,
    records,
    pool,
    defaultLimits: DEFAULT_LIMITS,
    onError,
    poolSize: options.poolSize ?? 0,
    take(id, instance) {
      live.set(id, instance);
      keepWatch(id, instance);
    },
  });
  pool.fill();
  return backend;
}

/** As many as start at once. */
const SPARE_TREES = 4;

const DEFAULT_LIMITS: Limits = LimitsSchema.parse({});
