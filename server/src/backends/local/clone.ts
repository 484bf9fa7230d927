/** Making a sandbox from a snapshot. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import { requireWanted, sameSpec } from '../check.ts';
import { requireRevivable } from './checkpoints.ts';
import { takeAway } from './end.ts';
import { newName, quotaOf, save, type Engine } from './engine.ts';
import { observationOf, type SandboxRecord } from './sandbox-record.ts';
import type { SnapshotOptions } from './snapshot.ts';
import { requireKept, type SnapshotRecord } from './snapshot-record.ts';
import { validate } from './start.ts';

export const CLONE_FAULTS = ['local.clone.recorded', 'local.clone.prepared', 'local.clone.done'] as const;

export async function clone(
  engine: Engine,
  id: SandboxId,
  { spec, snapshot, memory, signal }: { spec: SandboxSpec; snapshot: SnapshotId } & SnapshotOptions,
): Promise<Observation> {
  requireWanted(signal);
  const { ground, records } = engine;
  const there = records.get(id);
  if (there && there.phase !== 'removing') {
    if (there.parent === snapshot && sameSpec(there.spec, spec)) return observationOf(there);
    throw new CayError('already_exists', `Sandbox "${id}" exists already`);
  }
  if (there) await takeAway(engine, there);
  const tree = newName.instance();
  const hold = engine.held.hold(tree);
  let record: SandboxRecord | undefined;
  try {
    // From its record on the sandbox is known to stand on the snapshot, which is then not removed.
    const from = await engine.snapshotQueue.run(snapshot, async () => {
      const kept = requireKept(engine.snapshots, snapshot);
      await validate(engine, { ...spec, runtime: runtimeFor(engine, spec, kept) });
      if (memory) await requireMemory(engine, kept, spec);
      record = recordOf(id, spec, tree, kept, memory);
      await records.save({ ...record, phase: 'starting' });
      return kept;
    });
    await faultPoint('local.clone.recorded');
    await ground.trees.prepare(tree, { parent: from.tree, quotaBytes: quotaOf(ground, spec.limits) });
    await faultPoint('local.clone.prepared');
    const observation = await save(engine, record!);
    await faultPoint('local.clone.done');
    return observation;
  } catch (error) {
    if (record && records.get(id)) await takeAway(engine, record).catch(engine.onError);
    throw error;
  } finally {
    hold.release();
  }
}

function recordOf(id: SandboxId, spec: SandboxSpec, tree: string, from: SnapshotRecord, memory: boolean): SandboxRecord {
  return {
    id,
    spec,
    phase: memory ? 'hibernated' : 'stopped',
    incarnation: 1,
    runtime: spec.runtime ?? from.runtime,
    tree,
    footing: from.footing,
    parent: from.id,
    frozen: false,
    ...(memory && from.memory && { memory: { ...from.memory, snapshot: from.id } }),
  };
}

/** The runtime that a sandbox of these files gets. Rejects `unsupported` where the files would belong to others. */
function runtimeFor({ ground }: Engine, spec: SandboxSpec, from: SnapshotRecord): string {
  const wanted = spec.runtime ?? from.runtime;
  const [mine, theirs] = [ground.runtimes.get(wanted), ground.runtimes.get(from.runtime)];
  if (mine && theirs && mine.ids.hostId !== theirs.ids.hostId) {
    throw new CayError('unsupported', `Cannot use snapshot "${from.id}" with ${wanted}: its files belong to the users of ${from.runtime}`);
  }
  return wanted;
}

/** Rejects unless the snapshot has processes that can go on under this spec, here. */
export async function requireMemory(engine: Engine, from: SnapshotRecord, spec: SandboxSpec): Promise<void> {
  if (!from.memory) {
    throw new CayError('failed_precondition', `Snapshot "${from.id}" has no processes, only files`, { hint: 'use its files alone' });
  }
  if (spec.runtime !== undefined && spec.runtime !== from.runtime) {
    throw new CayError(
      'failed_precondition',
      `Cannot revive the processes of snapshot "${from.id}" on ${spec.runtime}: they are of ${from.runtime}`,
      {
        hint: 'use its files alone, without memory',
        details: { reason: 'checkpoint_mismatch' },
      },
    );
  }
  await requireRevivable(engine, `snapshot "${from.id}"`, { runtime: from.runtime, ...from.memory });
}
