/** Making a sandbox from a snapshot. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { UNISOLATED } from '../../policy/allow-runtime.ts';
import type { Observation } from '../backend.ts';
import { requireWanted, sameSpec } from '../support/check.ts';
import { requireRevivable } from './checkpoints.ts';
import { takeAway } from './end-instance.ts';
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
  const { resources, records } = engine;
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
      const runtime = spec.runtime ?? kept.runtime;
      await validate(engine, { ...spec, runtime });
      requireNamed(engine, spec, runtime);
      await requireUsable(engine, kept, { runtime, memory });
      record = recordOf(id, spec, tree, kept, memory);
      await records.save({ ...record, phase: 'starting' });
      return kept;
    });
    await faultPoint('local.clone.recorded');
    await resources.trees.prepare(tree, { parent: from.tree, quotaBytes: quotaOf(resources, spec.limits) });
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

/** A snapshot does not lead to a sandbox without isolation by itself: that is named, by somebody who may. */
function requireNamed(engine: Engine, spec: SandboxSpec, runtime: string): void {
  if (runtime !== UNISOLATED || (spec.runtime ?? engine.runtime) === UNISOLATED) return;
  throw new CayError(
    'permission_denied',
    `The runtime "${UNISOLATED}" of the snapshot has to be named: it isolates nothing`,
    {
      details: { runtime: UNISOLATED },
    },
  );
}

function recordOf(
  id: SandboxId,
  spec: SandboxSpec,
  tree: string,
  from: SnapshotRecord,
  memory: boolean,
): SandboxRecord {
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
