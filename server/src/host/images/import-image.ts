/** Taking images in from an archive that a client sends. */
import { createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { isDiskFull } from '../../lib/disk-full.ts';
import { feed } from '../../lib/feed.ts';
import { randomName } from '../../lib/random-name.ts';
import { archivedImages, type ArchivedImage } from './archived-images.ts';
import { assemble, treesOf } from './assemble.ts';
import type { ImportOptions } from './image.ts';
import type { ImageRecord } from './image-index.ts';
import { decompressed } from './layer-stream.ts';
import { ProgressMeter } from './progress.ts';
import type { Puller } from './pull-image.ts';
import { canonicalName, parseReference, type ImageReference } from './reference.ts';

export interface Imported {
  record: ImageRecord;
  /** In full. */
  names: string[];
}

/** The archive is kept on disk meanwhile. Nothing of an image is recorded before it is whole. */
export async function importImages(
  puller: Puller,
  dir: string,
  archive: AsyncIterable<Uint8Array>,
  options: ImportOptions,
): Promise<Imported[]> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = join(dir, randomName(20));
  const meter = new ProgressMeter();
  if (options.onProgress) meter.listen(options.onProgress);
  try {
    await spool(archive, path, puller.maxImageBytes, options.signal);
    const images = await archivedImages(path);
    const imported: Imported[] = [];
    for (const image of images) imported.push(await importOne(puller, image, options, meter));
    meter.enter('done');
    return imported;
  } finally {
    await rm(path, { force: true });
  }
}

async function importOne(
  puller: Puller,
  image: ArchivedImage,
  { ids, name, project, signal }: ImportOptions,
  meter: ProgressMeter,
): Promise<Imported> {
  const references = name ? [name] : image.names.flatMap(referenceIn);
  const [first] = references;
  if (!first) {
    throw new CayError('invalid_argument', 'The archive does not say what its image is called', {
      hint: 'give a name: cay image import FILE --name my-image:1',
    });
  }
  meter.begin(image.layers.map(({ digest, sizeBytes }) => ({ digest, size: sizeBytes, mediaType: '' })));
  meter.enter('unpacking');
  await assemble({
    ...puller,
    file: image.file,
    ids,
    treeBytes: puller.index.treeBytes,
    mostBytes: () => puller.maxImageBytes,
    signal,
    open: async (at) => image.layers[at]!.open(),
    onLayer: (at, state) =>
      meter.layer(image.layers[at]!.digest, { state, fetchedBytes: image.layers[at]!.sizeBytes }),
  });
  const known = puller.index.images.get(image.digest);
  const repositories = references.map(({ registry, repository }) => `${registry}/${repository}`);
  const record: ImageRecord = {
    digest: image.digest,
    state: 'whole',
    repositories: [...new Set([...(known?.repositories ?? []), ...repositories])],
    config: image.file.config,
    layers: image.layers.map(({ digest, sizeBytes }, at) => ({
      digest,
      diffId: image.file.diffIds[at]!,
      sizeBytes,
    })),
    trees: treesOf(image.file, ids),
    owner: `${ids.hostId}:${ids.size}`,
    pulledAtMs: puller.now(),
    usedAtMs: puller.now(),
    ...(known?.users && { users: known.users }),
  };
  puller.accounts.note(record, project);
  return { record, names: references.filter(({ tag }) => tag !== undefined).map(canonicalName) };
}

function referenceIn(text: string): ImageReference[] {
  try {
    const { digest: _digest, ...reference } = parseReference(text);
    return [{ tag: 'latest', ...reference }];
  } catch {
    return [];
  }
}

async function spool(
  archive: AsyncIterable<Uint8Array>,
  path: string,
  mostBytes: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  async function* bounded() {
    let bytes = 0;
    for await (const piece of decompressed(archive)) {
      bytes += piece.length;
      if (bytes > mostBytes)
        throw new CayError('resource_exhausted', `The archive is larger than ${mostBytes} bytes`);
      yield piece;
    }
  }
  try {
    await feed(bounded(), createWriteStream(path, { mode: 0o600, flags: 'wx' }), { signal });
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    throw new CayError('resource_exhausted', 'Cannot take the archive in: no space is left', {
      cause: error,
    });
  }
}
