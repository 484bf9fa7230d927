/** Making a sandbox from a snapshot. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { destroyInstance, startInstance, type Instance } from '../../host/instances/instance.ts';
import { reviveInstance } from '../../host/instances/revive.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { UNISOLATED } from '../../policy/allow-runtime.ts';
import type { Observation } from '../backend.ts';
import { requireWanted, sameSpec } from '../support/check.ts';
import { startMain } from '../support/start-main.ts';
import { requireRevivable } from './checkpoints.ts';
import { removeSandbox } from './end-instance.ts';
import { newName, quotaOf, requireOpen, save, type Engine } from './engine.ts';
import { ensure } from './ensure.ts';
import { hostnameFor, hostnameOf } from './hostname.ts';
import { plan } from './plan.ts';
import { observationOf, type SandboxRecord } from './sandbox-record.ts';
import { fitGuest } from './fit-guest.ts';
import type { SnapshotOptions } from './snapshot.ts';
import { requireKept, type SnapshotRecord } from './snapshot-record.ts';
import { inTurn, validate } from './start.ts';

export const CLONE_FAULTS = ['local.clone.recorded', 'local.clone.prepared', 'local.clone.done'] as const;
export const CLONE_START_FAULTS = [
  'local.clone.recorded',
  'local.clone.prepared',
  'local.clone.started',
] as const;

export interface CloneRequest extends SnapshotOptions {
  spec: SandboxSpec;
  snapshot: SnapshotId;
  start: boolean;
  name: string | undefined;
}

/**
 * Two durable states: `starting` before the tree exists, then `stopped`, `hibernated` or, with `start`,
 * `ready`. A crash between both leaves the sandbox absent, unless its restored guest still answers.
 */
export async function clone(engine: Engine, id: SandboxId, request: CloneRequest): Promise<Observation> {
  const { spec, snapshot, start, signal } = request;
  requireWanted(signal);
  if (start) requireOpen(engine, id);
  const there = engine.records.get(id);
  if (there && there.phase !== 'removing') {
    if (there.parent !== snapshot || !sameSpec(there.spec, spec))
      throw new CayError('already_exists', `Sandbox "${id}" exists already`);
    return start ? ensure(engine, id, spec, request) : observationOf(there);
  }
  if (there) await removeSandbox(engine, there);
  return start ? cloneRunning(engine, id, request) : cloneStopped(engine, id, request);
}

async function cloneStopped(engine: Engine, id: SandboxId, request: CloneRequest): Promise<Observation> {
  const { resources, records } = engine;
  const { spec, snapshot } = request;
  const tree = newName.instance();
  const hold = engine.held.hold(tree);
  let record: SandboxRecord | undefined;
  try {
    // From its record on the sandbox depends on the snapshot, which is then not removed.
    const from = await engine.snapshotQueue.run(snapshot, async () => {
      const kept = await requireClonable(engine, request);
      record = recordOf(id, tree, kept, request);
      await records.save({ ...record, phase: 'starting' }, { undoable: true });
      return kept;
    });
    await faultPoint('local.clone.recorded');
    await resources.trees.prepare(tree, { parent: from.tree, quotaBytes: quotaOf(resources, spec.limits) });
    await faultPoint('local.clone.prepared');
    const observation = await save(engine, record!);
    await faultPoint('local.clone.done');
    return observation;
  } catch (error) {
    if (record && records.get(id)) await removeSandbox(engine, record).catch(engine.onError);
    throw error;
  } finally {
    hold.release();
  }
}

async function cloneRunning(engine: Engine, id: SandboxId, request: CloneRequest): Promise<Observation> {
  const { resources, records } = engine;
  const { spec, snapshot, memory, signal } = request;
  const tree = newName.instance();
  const hold = engine.held.hold(tree);
  let record: SandboxRecord | undefined;
  let instance: Instance | undefined;
  try {
    const { from, facts } = await engine.snapshotQueue.run(snapshot, async () => {
      const kept = await requireClonable(engine, request);
      const unstarted = recordOf(id, tree, kept, request);
      const planned = await plan(
        engine,
        { ...spec, runtime: unstarted.runtime },
        { sandbox: id, on: unstarted, hostname: hostnameOf(unstarted) },
      );
      hold.add(planned.name);
      if (unstarted.memory) hold.add(unstarted.memory.image);
      record = { ...unstarted, phase: 'starting', instance: planned.name };
      await save(engine, record, { undoable: true });
      return { from: kept, facts: planned };
    });
    await faultPoint('local.clone.recorded');
    await resources.trees.prepare(tree, { parent: from.tree, quotaBytes: quotaOf(resources, spec.limits) });
    await faultPoint('local.clone.prepared');
    instance = await inTurn(engine, () =>
      memory
        ? reviveInstance(resources, facts, spec.limits, engine.images.path(from.memory!.image))
        : startInstance(resources, facts, spec.limits),
    );
    await faultPoint('local.clone.started');
    requireWanted(signal);
    if (!memory) await startMain(await fitGuest(instance, spec), spec);
    engine.live.set(id, instance);
    const observation = await save(engine, { ...record!, phase: 'ready', memory: undefined });
    engine.keepWatch(id, instance);
    return observation;
  } catch (error) {
    engine.live.delete(id);
    if (instance) await destroyInstance(resources, instance).catch(engine.onError);
    if (record && records.get(id)) await removeSandbox(engine, record).catch(engine.onError);
    throw error;
  } finally {
    hold.release();
  }
}

/** Rejects unless a sandbox of this spec can be made from the snapshot. */
async function requireClonable(
  engine: Engine,
  { spec, snapshot, memory }: CloneRequest,
): Promise<SnapshotRecord> {
  const kept = requireKept(engine.snapshots, snapshot);
  const runtime = spec.runtime ?? kept.runtime;
  await validate(engine, { ...spec, runtime }, { made: true });
  requireNamed(engine, spec, runtime);
  await requireUsable(engine, kept, { runtime, memory });
  return kept;
}

/** The unisolated runtime of a snapshot does not apply by itself: an admin has to name it. */
function requireNamed(engine: Engine, spec: SandboxSpec, runtime: string): void {
  if (runtime !== UNISOLATED || (spec.runtime ?? engine.runtime) === UNISOLATED) return;
  throw new CayError(
    'permission_denied',
    `The runtime "${UNISOLATED}" of the snapshot has to be named: it isolates nothing`,
    { details: { runtime: UNISOLATED } },
  );
}

function recordOf(
  id: SandboxId,
  tree: string,
  from: SnapshotRecord,
  { spec, memory, name }: Pick<CloneRequest, 'spec' | 'memory' | 'name'>,
): SandboxRecord {
  return {
    id,
    spec,
    phase: memory ? 'hibernated' : 'stopped',
    incarnation: 1,
    runtime: spec.runtime ?? from.runtime,
    hostname: hostnameFor(id, name),
    tree,
    footing: from.footing,
    parent: from.id,
    frozen: false,
    ...(memory && from.memory && { memory: { ...from.memory, snapshot: from.id } }),
  };
}

/**
 * Rejects unless a sandbox on this runtime can have the snapshot's files, and with `memory` its processes
 * too.
 */
export async function requireUsable(
  engine: Engine,
  from: SnapshotRecord,
  { runtime, memory }: { runtime: string; memory: boolean },
): Promise<void> {
  const [mine, theirs] = [runtime, from.runtime].map(
    (name) => engine.resources.runtimes.get(name)?.ids.hostId,
  );
  if (mine !== theirs) {
    throw new CayError(
      'unsupported',
      `Cannot use snapshot "${from.id}" with ${runtime}: its files belong to the users of ${from.runtime}`,
    );
  }
  if (!memory) return;
  if (!from.memory) {
    throw new CayError('failed_precondition', `Snapshot "${from.id}" has no processes, only files`, {
      hint: 'use its files alone',
    });
  }
  if (runtime !== from.runtime) {
    throw new CayError(
      'failed_precondition',
      `Cannot revive the processes of snapshot "${from.id}" on ${runtime}: they are of ${from.runtime}`,
      {
        hint: 'use its files alone, without memory',
        details: { reason: 'checkpoint_mismatch' },
      },
    );
  }
  await requireRevivable(engine, `snapshot "${from.id}"`, { runtime, ...from.memory });
}
