/** Ending a sandbox: because it was asked for, or because it has ended by itself. */
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { destroyInstance, destroyRemains, type Instance } from '../../host/instances/instance.ts';
import { shutDownInstance } from '../../host/instances/shut-down.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireRecord, save, type Engine } from './engine.ts';
import { observationOf, type SandboxRecord } from './sandbox-record.ts';

export const END_FAULTS = [
  'local.stop.recorded',
  'local.stop.ended',
  'local.remove.recorded',
  'local.remove.cleared',
] as const;

const DEFAULT_GRACE_MS = 10_000;

export async function stop(
  engine: Engine,
  id: SandboxId,
  { graceMs = DEFAULT_GRACE_MS }: { graceMs?: number },
): Promise<Observation> {
  const record = requireRecord(engine, id);
  const instance = engine.live.get(id);
  if (instance) {
    await noteStopping(engine, record);
    engine.live.delete(id);
    await shutDownInstance(engine.resources, instance, graceMs);
    await destroyInstance(engine.resources, instance);
  } else await clear(engine, record);
  if (record.phase === 'stopped' && record.instance === undefined) return observationOf(record);
  const { reason: _reason, message: _message, stopping: _stopping, ...rest } = record;
  const stopped: SandboxRecord = {
    ...rest,
    phase: 'stopped',
    instance: undefined,
    frozen: false,
    memory: undefined,
  };
  try {
    await faultPoint('local.stop.ended');
    await save(engine, stopped);
  } catch (error) {
    if (!instance) throw error;
    // The processes have ended, so the stop is done. The record still says `stopping`, which means the same
    // after a crash.
    engine.onError(error);
    engine.records.remember(stopped);
    engine.changes.send(observationOf(stopped));
    return observationOf(stopped);
  }
  await dropImage(engine, record).catch(engine.onError);
  return observationOf(stopped);
}

async function noteStopping({ records }: Engine, record: SandboxRecord): Promise<void> {
  // A full disk must not prevent the stop. After a crash halfway the sandbox then looks as if it had ended by
  // itself.
  await records.save({ ...record, stopping: true }).catch(ignoreFullDisk);
  await faultPoint('local.stop.recorded');
}

function ignoreFullDisk(error: unknown): void {
  if (!isCayError(error, 'resource_exhausted')) throw error;
}

/** Removes the sandbox and all that it had. */
export async function removeSandbox(engine: Engine, record: SandboxRecord): Promise<void> {
  const { resources, records, changes } = engine;
  // A full disk must not prevent the removal of what fills it. After a crash halfway the sandbox is then
  // `failed`, and can still be removed.
  await records.save({ ...record, phase: 'removing' }).catch(ignoreFullDisk);
  await faultPoint('local.remove.recorded');
  await clear(engine, record);
  await dropNext(engine, record);
  await faultPoint('local.remove.cleared');
  await resources.trees.remove(record.tree);
  await dropImage(engine, record);
  await records.delete(record.id);
  changes.send({ id: record.id, phase: 'absent', incarnation: 0 });
}

/** Removes the instance that a record names, also one that an interrupted end has left. */
export async function clear(
  { resources, live }: Engine,
  { id, instance, runtime }: SandboxRecord,
): Promise<void> {
  const held = live.get(id);
  live.delete(id);
  if (held) await destroyInstance(resources, held);
  else if (instance !== undefined) await destroyRemains(resources, { name: instance, runtime });
}

/** Removes what an unfinished rollback had made. */
export async function dropNext({ resources }: Engine, { next, runtime }: SandboxRecord): Promise<void> {
  if (!next) return;
  if (next.instance !== undefined) await destroyRemains(resources, { name: next.instance, runtime });
  await resources.trees.remove(next.tree);
}

/** Removes the memory image that a record names, unless it belongs to a snapshot. */
export async function dropImage({ images }: Engine, { memory }: SandboxRecord): Promise<void> {
  if (memory && memory.snapshot === undefined) await images.remove(memory.image);
}

/** Notes that the instance has ended by itself. */
export async function fail(engine: Engine, id: SandboxId, instance: Instance): Promise<void> {
  const { resources, records, live, onError } = engine;
  const record = records.get(id);
  if (live.get(id) !== instance || !record || record.phase === 'removing') return;
  live.delete(id);
  const oomKills = await instance.cgroup.read().then(
    (reading) => reading.oomKills,
    () => 0,
  );
  // An instance that could not be destroyed stays in the record: the next start, stop or removal tries again.
  const left = await destroyInstance(resources, instance).then(
    () => undefined,
    (error: unknown) => (onError(error), record.instance),
  );
  const oom = oomKills > 0;
  await save(engine, {
    ...record,
    phase: 'failed',
    instance: left,
    frozen: false,
    reason: oom ? 'oom_killed' : 'crashed',
    message: oom
      ? 'The sandbox used more memory than its limit and was ended as a whole'
      : 'The first process of the sandbox ended unexpectedly',
  });
}
