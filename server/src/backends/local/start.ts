/** Starting a sandbox: from nothing, or on the files that it has. */
import type { Limits, SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import {
  claimInstance,
  destroyInstance,
  limitInstance,
  nameInstance,
  startInstance,
  type Instance,
  type InstanceFacts,
} from '../../host/instances/instance.ts';
import type { Observation } from '../backend.ts';
import { requireSpec, requireWanted } from '../support/check.ts';
import { startMain } from '../support/start-main.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { clear } from './end-instance.ts';
import type { Hold } from './held-names.ts';
import { requireOpen, save, setQuota, type Engine } from './engine.ts';
import { pickRuntime } from './pick-runtime.ts';
import { fitGuest } from './fit-guest.ts';
import { cloneTemplate, templatePartsIn, plan } from './plan.ts';
import { poolKeyOf } from './pool.ts';
import { planMounts } from './plan-mounts.ts';
import { requireEnforceable, requireMountable } from './require-enforceable.ts';
import type { SandboxRecord } from './sandbox-record.ts';

export const START_FAULTS = ['local.start.recorded', 'local.start.started'] as const;

export interface ValidateOptions {
  /** Its files are there: the template need not be. */
  made?: boolean;
  signal?: AbortSignal | undefined;
}

export async function validate(
  engine: Engine,
  spec: SandboxSpec,
  { made = false, signal }: ValidateOptions = {},
): Promise<void> {
  requireSpec(spec);
  await engine.templates.check(spec.template, { made, signal });
  const runtime = await pickRuntime(engine, spec.runtime);
  requireEnforceable(spec.limits, engine.resources);
  requireMountable(spec, runtime);
  planMounts(engine, spec.mounts);
}

export async function start(
  engine: Engine,
  id: SandboxId,
  spec: SandboxSpec,
  {
    before,
    project,
    signal,
    hostname,
  }: {
    before: SandboxRecord | undefined;
    project?: string | undefined;
    signal: AbortSignal | undefined;
    hostname: string;
  },
): Promise<Observation> {
  requireWanted(signal);
  await validate(engine, spec, { made: before?.footing !== undefined, signal });
  if (before) await clear(engine, before);
  // The tree belongs to the ids of the runtime that it was made for.
  const facts = await plan(engine, before ? { ...spec, runtime: before.runtime } : spec, {
    sandbox: id,
    hostname,
    project,
    signal,
    ...(before && { on: before }),
  });
  const hold = engine.held.hold(facts.name, facts.tree);
  const ready = before ? undefined : await takeReady(engine, id, { spec, facts, hold });
  const used = ready && 'instance' in ready ? ready.instance.facts : facts;
  if (ready && 'tree' in ready) facts.tree = ready.tree;
  const record: SandboxRecord = {
    id,
    spec,
    phase: 'starting',
    incarnation: (before?.incarnation ?? 0) + 1,
    runtime: facts.runtime,
    hostname,
    instance: used.name,
    tree: used.tree,
    footing: templatePartsIn(used),
    parent: before?.parent,
    frozen: false,
  };
  let instance = ready && 'instance' in ready ? ready.instance : undefined;
  // Named while the record is written, which takes as long. The instance belongs to this sandbox from here
  // on, also if naming it fails.
  const named = instance && nameInstance(instance, hostname);
  named?.catch(() => {});
  try {
    // The record need not survive a loss of power: a new sandbox that was not `ready` is then absent.
    await save(engine, record, { undoable: !before });
    await faultPoint('local.start.recorded');
    if (instance) await Promise.all([named, applyLimits(engine, instance, spec.limits)]);
    else instance = await startCold(engine, facts, spec.limits, { fresh: !before && ready === undefined });
    await faultPoint('local.start.started');
    requireWanted(signal);
    await startMain(await fitGuest(instance, spec), spec);
    engine.live.set(id, instance);
    const footing = templatePartsIn(instance.facts);
    const observation = await save(engine, { ...record, phase: 'ready', footing });
    engine.keepWatch(id, instance);
    return observation;
  } catch (error) {
    engine.live.delete(id);
    // The caller gets the reason of the failed start, not a failure of the undo.
    await undo(engine, record, { before, instance, error: error as Error }).catch(engine.onError);
    throw error;
  } finally {
    hold.release();
  }
}

/**
 * Takes what was made in advance: a running instance, an instance that is just being made, or a tree. It is
 * held in the turn of the event loop in which it is taken.
 */
async function takeReady(
  engine: Engine,
  id: SandboxId,
  { spec, facts, hold }: { spec: SandboxSpec; facts: InstanceFacts; hold: Hold },
): Promise<{ instance: Instance } | { tree: string } | undefined> {
  const poolable = !facts.readOnlyRoot && !facts.mounts && facts.openFiles === engine.usual.openFiles;
  const key = poolKeyOf(facts);
  const claim = (instance: Instance) => {
    hold.add(instance.facts.name);
    hold.add(instance.facts.tree);
    claimInstance(engine.resources, instance);
  };
  try {
    const waiting = poolable ? engine.pool.take(key) : undefined;
    if (waiting) claim(waiting);
    const instance = waiting ?? (poolable ? await engine.pool.next(key, claim) : undefined);
    if (instance) return { instance };
    // It may have been closed while this one waited.
    requireOpen(engine, id);
  } catch (error) {
    hold.release();
    throw error;
  }
  // Trees of images are not cloned in advance: a clone that waits would keep an image from being removed.
  const spare = facts.image === undefined && spec.limits.diskBytes === engine.usual.diskBytes;
  const tree = spare ? engine.spares.take(facts.templateTree) : undefined;
  return tree === undefined ? undefined : { tree: hold.add(tree) };
}

/** Starts an instance, on a new clone of its template if it is `fresh`, when it is its turn. */
async function startCold(
  engine: Engine,
  facts: InstanceFacts,
  limits: Limits,
  { fresh }: { fresh: boolean },
): Promise<Instance> {
  return inTurn(engine, async () => {
    if (fresh) await cloneTemplate(engine, facts);
    // The quota is set while the instance starts: only the guest runs by then.
    const [started, limited] = await Promise.allSettled([
      startInstance(engine.resources, facts, limits),
      fresh ? setQuota(engine.resources, facts.tree, limits) : undefined,
    ]);
    if (started.status === 'rejected') throw started.reason;
    if (limited.status === 'fulfilled') return started.value;
    await destroyInstance(engine.resources, started.value);
    throw limited.reason;
  });
}

/** Only so many start at once; the pool is not filled meanwhile. */
export async function inTurn<T>(engine: Engine, task: () => Promise<T>): Promise<T> {
  engine.foreground++;
  try {
    return await engine.starts.run(task);
  } finally {
    engine.foreground--;
  }
}

/** Undoes a start. */
async function undo(
  engine: Engine,
  record: SandboxRecord,
  {
    before,
    instance,
    error,
  }: { before: SandboxRecord | undefined; instance: Instance | undefined; error: Error },
): Promise<void> {
  const { resources, records, changes } = engine;
  if (instance) await destroyInstance(resources, instance);
  if (before) {
    await save(engine, {
      ...record,
      phase: 'failed',
      instance: undefined,
      reason: 'start_failed',
      message: error.message,
    });
    return;
  }
  await resources.trees.remove(record.tree);
  await records.delete(record.id);
  changes.send({ id: record.id, phase: 'absent', incarnation: 0 });
}

/** Fits an instance from the pool to what was asked for. */
async function applyLimits({ resources, usual }: Engine, instance: Instance, limits: Limits): Promise<void> {
  const same = (key: keyof Limits) => limits[key] === usual[key];
  const { cpus, memoryBytes, pids } = limits;
  await Promise.all([
    same('cpus') && same('memoryBytes') && same('pids')
      ? undefined
      : limitInstance(instance, { cpus, memoryBytes, pids }),
    same('diskBytes') ? undefined : setQuota(resources, instance.facts.tree, limits),
  ]);
}
