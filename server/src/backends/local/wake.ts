/** Restoring a hibernated sandbox. */
import { destroyInstance, type Instance } from '../../host/instances/instance.ts';
import { reviveInstance } from '../../host/instances/revive.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { requireRevivable } from './checkpoints.ts';
import { clear, dropImage } from './end-instance.ts';
import { newName, quotaOf, save, type Engine } from './engine.ts';
import { hostnameOf } from './hostname.ts';
import { plan } from './plan.ts';
import type { SandboxRecord } from './sandbox-record.ts';
import { inTurn } from './start.ts';

export const WAKE_FAULTS = ['local.wake.recorded', 'local.wake.revived', 'local.wake.done'] as const;

/** When it rejects the sandbox is hibernated as before, with its image. */
export async function wake(
  engine: Engine,
  record: SandboxRecord,
  signal: AbortSignal | undefined,
): Promise<Observation> {
  requireWanted(signal);
  const { id, spec, runtime } = record;
  const memory = record.memory!;
  await requireRevivable(engine, `sandbox "${id}"`, { runtime, ...memory });
  if (record.instance !== undefined) await clear(engine, record);
  const facts = await plan(
    engine,
    { ...spec, runtime },
    { sandbox: id, on: record, hostname: hostnameOf(record) },
  );
  const hold = engine.held.hold(facts.name, memory.image);
  const starting: SandboxRecord = {
    ...record,
    phase: 'starting',
    incarnation: record.incarnation + 1,
    instance: facts.name,
  };
  let instance: Instance | undefined;
  try {
    await save(engine, starting);
    await faultPoint('local.wake.recorded');
    instance = await inTurn(engine, () =>
      reviveInstance(engine.resources, facts, spec.limits, engine.images.path(memory.image)),
    );
    await faultPoint('local.wake.revived');
    engine.live.set(id, instance);
    const observation = await save(engine, { ...starting, phase: 'ready', memory: undefined });
    engine.keepWatch(id, instance);
    engine.backgroundCleanup.start(id, async () => {
      await faultPoint('local.wake.done');
      await dropImage(engine, record);
    });
    return observation;
  } catch (error) {
    engine.live.delete(id);
    if (instance) await destroyInstance(engine.resources, instance).catch(engine.onError);
    await hibernateAgain(engine, starting).catch(engine.onError);
    throw error;
  } finally {
    hold.release();
  }
}

/**
 * Records that a sandbox could not be woken. Its processes may have run for a moment, and have written files
 * that its memory image does not know of: a sandbox that has just come from a snapshot gets the files of that
 * snapshot again.
 */
export async function hibernateAgain(engine: Engine, record: SandboxRecord): Promise<void> {
  const { resources, snapshots, held, onError } = engine;
  const asleep: SandboxRecord = { ...record, phase: 'hibernated', instance: undefined };
  const from = record.memory?.snapshot === undefined ? undefined : snapshots.get(record.memory.snapshot);
  if (!from) return void (await save(engine, asleep));
  const tree = newName.instance();
  const hold = held.hold(tree, record.tree);
  try {
    await resources.trees.prepare(tree, {
      parent: from.tree,
      quotaBytes: quotaOf(resources, record.spec.limits),
    });
    await save(engine, { ...asleep, tree });
    await resources.trees.remove(record.tree).catch(onError);
  } catch (error) {
    onError(error);
    await resources.trees.remove(tree).catch(onError);
    await save(engine, asleep);
  } finally {
    hold.release();
  }
}
