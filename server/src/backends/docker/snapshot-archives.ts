/** Snapshots as archives, out and in. The format is that of all backends (`host/archives/envelope.ts`). */
import { CayError, type SnapshotId } from '@cay/sdk/protocol';
import { openArchive } from '../../host/archives/open-archive.ts';
import { archiveOfTree } from '../../host/archives/write-archive.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { ArchiveSeal, CallScope, ImportOptions, SnapshotFacts } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { importFailure } from '../support/snapshot-errors.ts';
import type { DockerContext } from './docker-context.ts';
import { flatImage, removeImage, unpackInto } from './flat-image.ts';
import { exportFiles } from './snapshot-content.ts';
import type { ImageInspect, SnapshotImages } from './snapshot-images.ts';
import type { SnapshotReaders } from './snapshot-readers.ts';

export const IMPORT_FAULTS = [
  'docker.import.unpacked',
  'docker.import.checked',
  'docker.import.kept',
] as const;

interface ArchiveContext extends DockerContext {
  snapshots: SnapshotImages;
  readers: SnapshotReaders;
}

export async function* exportArchive(
  { client, readers, snapshots }: ArchiveContext,
  snapshot: SnapshotId,
  { seal, ...scope }: CallScope & { seal?: ArchiveSeal },
): AsyncIterable<Uint8Array> {
  const { facts } = await snapshots.require(snapshot, scope);
  const { id, sandbox, spec } = facts;
  const action = `export snapshot "${snapshot}"`;
  yield* archiveOfTree({
    manifest: { snapshot: id, sandbox, spec, runtime: null, whole: true },
    tree: readers.reading(snapshot, scope, (container) => exportFiles(client, container, action, scope)),
    ...(seal && { sign: (digest: string) => seal.sign(digest) }),
  });
}

/**
 * Whether an archive is complete is known at its end only: until then it is an image without a name, which is
 * swept if this does not come to its end.
 */
export async function importArchive(
  context: ArchiveContext,
  snapshot: SnapshotId,
  archive: AsyncIterable<Uint8Array>,
  { signal, admit }: ImportOptions,
): Promise<SnapshotFacts> {
  const { client, images, snapshots } = context;
  requireWanted(signal);
  if (await snapshots.find(snapshot))
    throw new CayError('already_exists', `Snapshot "${snapshot}" exists already`);
  const action = `take in snapshot "${snapshot}"`;
  const opened = openArchive(archive, { ...(signal && { signal }) });
  const call = { action, admit, ...(signal && { signal }) };
  let flat: ImageInspect | undefined;
  try {
    const { sandbox, spec, memory, whole } = await opened.manifest();
    const labelsOf = (baseBytes: number) => snapshots.labelsOf({ id: snapshot, sandbox, spec, baseBytes });
    const finish = async () => {
      await faultPoint('docker.import.unpacked');
      await opened.skipMemory();
      await opened.end();
      await faultPoint('docker.import.checked');
      requireWanted(signal);
    };
    if (whole) {
      flat = await flatImage(context, opened.tree(), call);
      await finish();
      await images.prepareAs(flat, { tag: snapshot, labels: labelsOf(0) });
    } else {
      // The template's own files are not in it: they are those that the template has here.
      const base = await images.prepare(spec.template, { ...(signal && { signal }) });
      await images.prepareAs(
        { Id: base.id, Size: base.sizeBytes },
        {
          tag: snapshot,
          labels: labelsOf(base.sizeBytes),
          async fill(container) {
            await unpackInto(client, container, opened.tree(), call);
            await finish();
          },
        },
      );
    }
    await faultPoint('docker.import.kept');
    const { facts: kept } = await snapshots.require(snapshot);
    return { ...kept, spec, ...(memory && { memoryDropped: 'runtime' as const }) };
  } catch (error) {
    await snapshots.remove(snapshot).catch(() => {});
    if (flat) await removeImage(client, flat.Id).catch(() => {});
    throw importFailure(error, action, signal);
  } finally {
    await opened.close();
  }
}
