/**
 * Putting a sandbox to where a snapshot is.
 *
 * The new instance is made beside the old one, which is frozen meanwhile; one change of the record then makes
 * the new the sandbox's. Until then any failure takes the new away and lets the old go on; after it the old
 * is only something left to be removed.
 */
import type { SandboxId, SnapshotId } from '@cay/sdk/protocol';
import {
  destroyInstance,
  freezeInstance,
  startInstance,
  type Instance,
  type InstanceFacts,
} from '../../host/instances/instance.ts';
import { reviveInstance } from '../../host/instances/revive.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { fitGuest } from './fit-guest.ts';
import { startMain } from '../support/start-main.ts';
import { requireUsable } from './clone.ts';
import { clear, dropImage, dropNext } from './end-instance.ts';
import { newName, quotaOf, requireRecord, save, wrongPhase, type Engine } from './engine.ts';
import { hostnameOf } from './hostname.ts';
import { plan } from './plan.ts';
import type { SandboxRecord } from './sandbox-record.ts';
import type { SnapshotOptions } from './snapshot.ts';
import { requireKept, type SnapshotRecord } from './snapshot-record.ts';
import { inTurn } from './start.ts';

export const ROLLBACK_FAULTS = [
  'local.rollback.recorded',
  'local.rollback.frozen',
  'local.rollback.prepared',
  'local.rollback.started',
  'local.rollback.switched',
] as const;

/**
 * How long a rollback waits for unwritten files of mounts. What remains is written when the old instance has
 * ended.
 */
const BUCKETS_MS = 20_000;

export async function rollback(
  engine: Engine,
  id: SandboxId,
  { snapshot, memory, signal }: { snapshot: SnapshotId } & SnapshotOptions,
): Promise<Observation> {
  requireWanted(signal);
  const before = requireRecord(engine, id);
  const old = engine.live.get(id);
  if (before.phase === 'starting' || (before.phase === 'ready' && !old)) throw wrongPhase(before);
  if (!old) await clear(engine, before);
  if (before.next) await dropNext(engine, before);
  const { next: _next, ...record } = before;
  const name = newName.instance();
  const hold = engine.held.hold(name);
  let fresh: Instance | undefined;
  let intended = false;
  try {
    const from = await engine.snapshotQueue.run(snapshot, async () => {
      const kept = requireKept(engine.snapshots, snapshot);
      await requireUsable(engine, kept, { runtime: record.runtime, memory });
      intended = true;
      await engine.records.save({
        ...record,
        next: { ...(old && { instance: name }), tree: name, parent: snapshot },
      });
      return kept;
    });
    await faultPoint('local.rollback.recorded');
    if (old && !record.frozen && engine.resources.cgroups.controllers.freezer)
      await freezeInstance(old, true);
    await faultPoint('local.rollback.frozen');
    // Files that the old instance has open in mounts of buckets are written first, and those of the new one
    // later.
    if (old) await engine.resources.bucketMounts?.write(id, BUCKETS_MS);
    const quotaBytes = quotaOf(engine.resources, record.spec.limits);
    await engine.resources.trees.prepare(name, { parent: from.tree, quotaBytes });
    await faultPoint('local.rollback.prepared');
    if (old) fresh = await startOn(engine, record, from, { name, memory });
    await faultPoint('local.rollback.started');
    requireWanted(signal);
    if (fresh && !memory) await startMain(await fitGuest(fresh, record.spec), record.spec);
    const observation = await save(engine, recordAfter(record, from, { name, memory }));
    if (fresh) {
      engine.live.set(id, fresh);
      engine.keepWatch(id, fresh);
    }
    takeAwayOld(engine, record, old);
    return observation;
  } catch (error) {
    if (intended) await undo(engine, record, { name, fresh, old }).catch(engine.onError);
    throw error;
  } finally {
    hold.release();
  }
}

async function startOn(
  engine: Engine,
  record: SandboxRecord,
  from: SnapshotRecord,
  how: { name: string; memory: boolean },
): Promise<Instance> {
  const { spec, runtime } = record;
  const planned = await plan(
    engine,
    { ...spec, runtime },
    {
      sandbox: record.id,
      on: { tree: how.name, footing: from.footing },
      hostname: hostnameOf(record),
    },
  );
  const facts: InstanceFacts = { ...planned, name: how.name };
  return inTurn(engine, () =>
    how.memory
      ? reviveInstance(engine.resources, facts, spec.limits, engine.images.path(from.memory!.image))
      : startInstance(engine.resources, facts, spec.limits),
  );
}

/** The record after the new instance has become that of the sandbox. */
function recordAfter(
  record: SandboxRecord,
  from: SnapshotRecord,
  { name, memory }: { name: string; memory: boolean },
): SandboxRecord {
  const { reason: _reason, message: _message, memory: _memory, ...rest } = record;
  const common = {
    ...rest,
    incarnation: record.incarnation + 1,
    tree: name,
    footing: from.footing,
    parent: from.id,
    frozen: false,
  };
  if (record.phase === 'ready') return { ...common, phase: 'ready', instance: name };
  const rested = { ...common, instance: undefined };
  return memory
    ? { ...rested, phase: 'hibernated', memory: { ...from.memory!, snapshot: from.id } }
    : { ...rested, phase: 'stopped' };
}

/** Puts back the old instance with its processes, and removes the new one. */
async function undo(
  { resources, records, onError }: Engine,
  record: SandboxRecord,
  { name, fresh, old }: { name: string; fresh: Instance | undefined; old: Instance | undefined },
): Promise<void> {
  if (fresh) await destroyInstance(resources, fresh).catch(onError);
  if (old && !record.frozen) await freezeInstance(old, false).catch(onError);
  await resources.trees.remove(name).catch(onError);
  await records.save(record);
}

function takeAwayOld(engine: Engine, record: SandboxRecord, old: Instance | undefined): void {
  const hold = engine.held.hold(
    record.tree,
    ...(old ? [old.facts.name] : []),
    ...(record.memory ? [record.memory.image] : []),
  );
  engine.backgroundCleanup.start(record.id, async () => {
    try {
      await faultPoint('local.rollback.switched');
      if (old) await destroyInstance(engine.resources, old);
      await engine.resources.trees.remove(record.tree);
      await dropImage(engine, record);
    } finally {
      hold.release();
    }
  });
}
