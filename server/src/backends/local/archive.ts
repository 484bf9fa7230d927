/** Snapshots as archives, out and in. */
import { CayError, isCayError, newId, type MemoryDropped, type SnapshotId } from '@cay/sdk/protocol';
import type { Manifest } from '../../host/archives/manifest.ts';
import { readArchive, type ReadArchive, type ReadArchiveOptions } from '../../host/archives/read-archive.ts';
import { writeArchive } from '../../host/archives/write-archive.ts';
import { restoreKeptGuest } from '../../host/instances/kept-guest.ts';
import type { Runtime } from '../../host/runtimes/runtime.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { ArchiveSeal, CallScope, ImportOptions, SnapshotFacts } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { newName, type Engine } from './engine.ts';
import { pickRuntime } from './pick-runtime.ts';
import { templatePartsOf } from './plan.ts';
import { idsOf, requireSnapshot, wanted, withSignal } from './snapshot-content.ts';
import { grownBy } from './grown-by.ts';
import type { TemplateParts } from './sandbox-record.ts';
import { snapshotFactsOf, type SnapshotRecord } from './snapshot-record.ts';
import { undoSnapshot } from './undo-snapshot.ts';

export const IMPORT_FAULTS = [
  'local.import.unpacked',
  'local.import.recorded',
  'local.import.committed',
  'local.import.kept',
] as const;

export async function* exportSnapshot(
  engine: Engine,
  snapshot: SnapshotId,
  { signal, seal }: CallScope & { seal?: ArchiveSeal } = {},
): AsyncIterable<Uint8Array> {
  const { resources, images } = engine;
  const record = requireSnapshot(engine, snapshot);
  const { id, sandbox, spec, runtime, memory, tree, footing } = record;
  const archive = writeArchive({
    manifest: { snapshot: id, sandbox, spec, runtime, ...(footing.binds.length === 0 && { whole: true }) },
    tree: { path: await resources.trees.committedPath(tree), ids: idsOf(engine, record) },
    ...(memory && { image: { dir: images.path(memory.image), compatibility: memory.compatibility } }),
    guestBinary: resources.guestBinary,
    ...(seal && { sign: (digest: string) => seal.sign(digest) }),
    ...withSignal(signal),
  });
  yield* wanted(archive, signal);
}

export async function importSnapshot(
  engine: Engine,
  snapshot: SnapshotId,
  archive: AsyncIterable<Uint8Array>,
  options: ImportOptions = {},
): Promise<SnapshotFacts> {
  const { signal } = options;
  return engine.snapshotQueue.run(snapshot, async () => {
    requireWanted(signal);
    const there = engine.snapshots.get(snapshot);
    if (there?.state === 'kept')
      throw new CayError('already_exists', `Snapshot "${snapshot}" exists already`);
    if (there?.state === 'removing') await setAside(engine, there);
    else if (there) await undoSnapshot(engine, there);
    try {
      return await takeIn(engine, snapshot, archive, options);
    } catch (error) {
      requireWanted(signal);
      if (!isDiskFull(error)) throw error;
      throw new CayError('resource_exhausted', `Cannot take in snapshot "${snapshot}": the disk is full`, {
        cause: error,
      });
    }
  });
}

/**
 * A removed snapshot that others descend from keeps its tree until they are gone, under a name that no caller
 * asks for.
 */
async function setAside({ snapshots }: Engine, record: SnapshotRecord): Promise<void> {
  await snapshots.save({ ...record, id: newId('snap') });
  await snapshots.delete(record.id);
}

/**
 * An archive is known to be complete only at its end. Until then no record names its tree and its image, and
 * the sweep removes them if this call does not finish.
 */
async function takeIn(
  engine: Engine,
  snapshot: SnapshotId,
  archive: AsyncIterable<Uint8Array>,
  { signal, admit, ...trust }: ImportOptions,
): Promise<SnapshotFacts> {
  const { resources, images, held } = engine;
  const [build, tree, image] = [newName.instance(), newName.snapshotTree(), newName.image()];
  const hold = held.hold(build, tree, image, snapshot);
  // The archive names its runtime; here the files belong to the users of the default runtime.
  const usual = await pickRuntime(engine);
  let kept = false;
  try {
    const { manifest, digest } = await read(archive, {
      tree: async ({ part, spec }) => {
        const template = part && templatePartsOf(await engine.templates.prepare(spec.template, usual.ids));
        const path = await resources.trees.prepare(build, template && { parent: template.templateTree });
        return { path, ids: usual.ids };
      },
      imageDir: await images.make(image),
      maxBytes: (await resources.trees.space()).freeBytes,
      ...(admit && { admit }),
      guestBinary: resources.guestBinary,
      ...withSignal(signal),
    });
    await faultPoint('local.import.unpacked');
    const foreign = manifest.memory && !trust.foreignMemory ? foreignness(digest, trust.seal) : undefined;
    const record = await recordOf(engine, snapshot, manifest, { tree, image, usual, foreign });
    if (record.memory) {
      await restoreKeptGuest(images.path(image));
      await images.sync(image);
    }
    const memoryBytes = record.memory && (await images.bytes(image));
    const facts = await keep(engine, { ...record, ...(memoryBytes !== undefined && { memoryBytes }) }, build);
    kept = record.memory !== undefined;
    const memoryDropped = manifest.memory && !record.memory ? (foreign ?? 'runtime') : undefined;
    return { ...facts, ...(memoryDropped && { memoryDropped }) };
  } finally {
    await resources.trees.remove(build).catch(engine.onError);
    if (!kept) await images.remove(image).catch(engine.onError);
    hold.release();
  }
}

/** An archive that names what it does not have, such as the target of a hard link, is damaged. */
async function read(archive: AsyncIterable<Uint8Array>, options: ReadArchiveOptions): Promise<ReadArchive> {
  try {
    return await readArchive(archive, options);
  } catch (error) {
    if (!isCayError(error, 'not_found') && !isCayError(error, 'already_exists')) throw error;
    throw new CayError('invalid_argument', `The archive is damaged: ${error.message}`, { cause: error });
  }
}

/** A runtime trusts what is in a memory image, so only images of this installation are imported. */
function foreignness(
  { sha256, signature }: ReadArchive['digest'],
  seal: ArchiveSeal | undefined,
): MemoryDropped | undefined {
  if (signature === undefined) return 'unsigned';
  return seal?.verify(sha256, signature) ? undefined : 'foreign';
}

async function recordOf(
  engine: Engine,
  id: SnapshotId,
  { sandbox, spec, runtime, memory, whole }: Manifest,
  {
    tree,
    image,
    usual,
    foreign,
  }: { tree: string; image: string; usual: Runtime; foreign: MemoryDropped | undefined },
): Promise<SnapshotRecord> {
  const theirs = engine.resources.runtimes.get(runtime ?? usual.name);
  const same = theirs && theirs.ids.hostId === usual.ids.hostId ? theirs : undefined;
  return {
    id,
    sandbox,
    spec,
    state: 'taking',
    tree,
    footing: whole
      ? await templatePartsOfWhole(engine, usual)
      : templatePartsOf(await engine.templates.prepare(spec.template, usual.ids)),
    runtime: (same ?? usual).name,
    // Processes cannot continue without their runtime.
    ...(memory &&
      !foreign &&
      same?.checkpoints && { memory: { image, compatibility: memory.compatibility } }),
  };
}

/** A tree that has all its files needs nothing of its template, which may not even be here. */
async function templatePartsOfWhole(engine: Engine, { ids }: Runtime): Promise<TemplateParts> {
  const { templateTree } = templatePartsOf(await engine.templates.prepare('base', ids));
  return { templateTree, binds: [] };
}

async function keep(engine: Engine, record: SnapshotRecord, build: string): Promise<SnapshotFacts> {
  try {
    await engine.snapshots.save(record);
    await faultPoint('local.import.recorded');
    await engine.resources.trees.commit(record.tree, build);
    await faultPoint('local.import.committed');
    const kept: SnapshotRecord = { ...record, ...(await grownBy(engine, record.tree, build)), state: 'kept' };
    await engine.snapshots.save(kept);
    await faultPoint('local.import.kept');
    return snapshotFactsOf(kept);
  } catch (error) {
    await engine.snapshots.save(record).catch(engine.onError);
    await undoSnapshot(engine, record).catch(engine.onError);
    throw error;
  }
}
