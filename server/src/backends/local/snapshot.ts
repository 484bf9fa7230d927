/** Takes a snapshot of a sandbox: its files and, where asked for, its memory. */
import { CayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { captureInstance } from '../../host/instances/capture.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SnapshotFacts } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { requireCheckpoints } from './checkpoints.ts';
import { newName, requireRecord, wrongPhase, type Engine } from './engine.ts';
import { grownBy } from './grown-by.ts';
import { templatePartsOf } from './plan.ts';
import type { TemplateParts, SandboxRecord } from './sandbox-record.ts';
import { snapshotFactsOf, type SnapshotRecord } from './snapshot-record.ts';
import { undoSnapshot } from './undo-snapshot.ts';

export const SNAPSHOT_FAULTS = [
  'local.snapshot.recorded',
  'local.snapshot.still',
  'local.snapshot.captured',
  'local.snapshot.kept',
] as const;

export interface SnapshotOptions {
  memory: boolean;
  signal: AbortSignal | undefined;
}

/** Runs in the queue of the sandbox. */
export function takeSnapshot(
  engine: Engine,
  id: SandboxId,
  snapshot: SnapshotId,
  options: SnapshotOptions,
): Promise<SnapshotFacts> {
  return engine.snapshotQueue.run(snapshot, async () => {
    requireWanted(options.signal);
    const sandbox = requireRecord(engine, id);
    const there = engine.snapshots.get(snapshot);
    if (there?.state === 'kept' && there.sandbox === id) return snapshotFactsOf(there);
    if (there && there.state !== 'taking')
      throw new CayError('already_exists', `Snapshot "${snapshot}" exists already`);
    // Removes what an earlier attempt has left.
    if (there) await undoSnapshot(engine, there);
    return take(engine, sandbox, await planSnapshot(engine, sandbox, snapshot, options));
  });
}

async function take(engine: Engine, sandbox: SandboxRecord, record: SnapshotRecord): Promise<SnapshotFacts> {
  const hold = engine.held.hold(record.id, record.tree);
  if (record.memory) hold.add(record.memory.image);
  try {
    await engine.snapshots.save(record);
    await faultPoint('local.snapshot.recorded');
    await keep(engine, sandbox, record);
    await faultPoint('local.snapshot.captured');
    const [grown, memoryBytes] = await Promise.all([
      grownBy(engine, record.tree, sandbox.tree),
      record.memory && engine.images.bytes(record.memory.image),
    ]);
    const kept: SnapshotRecord = {
      ...record,
      ...grown,
      ...(memoryBytes !== undefined && { memoryBytes }),
      state: 'kept',
    };
    await engine.snapshots.save(kept);
    await faultPoint('local.snapshot.kept');
    return snapshotFactsOf(kept);
  } catch (error) {
    // What cannot be undone now is still recorded as being taken: the next sweep finds it.
    await engine.snapshots.save(record).catch(engine.onError);
    await undoSnapshot(engine, record).catch(engine.onError);
    if (!isDiskFull(error)) throw error;
    throw new CayError('resource_exhausted', `Cannot keep sandbox "${sandbox.id}": the disk is full`, {
      cause: error,
    });
  } finally {
    hold.release();
  }
}

async function planSnapshot(
  engine: Engine,
  sandbox: SandboxRecord,
  id: SnapshotId,
  { memory }: SnapshotOptions,
): Promise<SnapshotRecord> {
  const { spec, runtime, footing } = sandbox;
  const running = sandbox.phase === 'ready' && engine.live.has(sandbox.id);
  if (sandbox.phase === 'starting' || (sandbox.phase === 'ready' && !running)) throw wrongPhase(sandbox);
  const checkpoints = memory ? requireCheckpoints(engine, runtime) : undefined;
  if (memory && !running && sandbox.phase !== 'hibernated') {
    throw new CayError(
      'failed_precondition',
      `Cannot keep the processes of sandbox "${sandbox.id}": it is ${sandbox.phase}`,
      {
        details: { phase: sandbox.phase },
      },
    );
  }
  const prepared = footing ?? (await templatePartsToday(engine, sandbox));
  return {
    id,
    sandbox: sandbox.id,
    spec,
    state: 'taking',
    tree: newName.snapshotTree(),
    footing: prepared,
    runtime,
    ...(checkpoints && {
      memory: {
        image: newName.image(),
        compatibility: sandbox.memory?.compatibility ?? (await checkpoints.compatibility()),
      },
    }),
  };
}

/** For a sandbox whose record does not say which template tree it has. */
async function templatePartsToday(
  { templates, resources }: Engine,
  { spec, runtime }: SandboxRecord,
): Promise<TemplateParts> {
  return templatePartsOf(await templates.prepare(spec.template, resources.runtimes.get(runtime)!.ids));
}

/** Copies the files, and the processes if they are to be kept, as they are at one moment. */
async function keep(engine: Engine, sandbox: SandboxRecord, record: SnapshotRecord): Promise<void> {
  const { resources, images, live } = engine;
  const commit = async () => {
    await resources.trees.commit(record.tree, sandbox.tree);
    await faultPoint('local.snapshot.still');
  };
  const instance = live.get(sandbox.id);
  // All that was written inside is in the tree already: processes under runc write to the page cache of the
  // host, and gVisor writes through a host descriptor for each file (`host/instances/sync.test.ts`).
  if (!record.memory) return commit();
  const { image } = record.memory;
  if (!instance) {
    await images.copy(sandbox.memory!.image, image);
    return commit();
  }
  const imageDir = await images.make(image);
  let synced: Promise<void> | undefined;
  await captureInstance(resources, instance, {
    imageDir,
    goOn: true,
    whileStill() {
      // The image is whole by now. It reaches the disk while the files are copied and the sandbox goes on.
      synced = images.sync(image);
      synced.catch(() => {});
      return commit();
    },
  });
  await synced;
}
