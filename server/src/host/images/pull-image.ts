/** Fetching an image from its registry: documents first, then its missing layers side by side, into trees. */
import { createReadStream } from 'node:fs';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { inBackground, ignoreFailure } from '../../lib/in-background.ts';
import type { Semaphore } from '../../lib/semaphore.ts';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { assemble, layersThere, treesOf } from './assemble.ts';
import type { Blobs } from './blobs.ts';
import type { ImageIndex, ImageRecord } from './image-index.ts';
import { joinOrDo } from './join-or-do.ts';
import type { LayerTrees } from './layer-trees.ts';
import {
  chooseManifest,
  parseConfig,
  parseManifest,
  requirePlatform,
  thisArchitecture,
  type ConfigFile,
  type Manifest,
} from './manifest.ts';
import type { ProgressMeter } from './progress.ts';
import { canonicalName, type ImageReference } from './reference.ts';
import type { Registry } from './registry/registry.ts';

export const PULL_FAULTS = ['images.pull.recorded', 'images.pull.fetched', 'images.pull.done'] as const;

export interface Puller {
  registry: Registry;
  index: ImageIndex;
  blobs: Blobs;
  layers: LayerTrees;
  trees: Snapshotter;
  guestBinary: string;
  fetches: Semaphore;
  fetching: Map<string, Promise<void>>;
  /** How many pulls need each blob. */
  blobUsers: Map<string, number>;
  maxImageBytes: number;
  now(): number;
}

export interface Resolved {
  /** Of what the name leads to, an index or a manifest. */
  digest: string;
  manifest: Manifest;
  file: ConfigFile;
}

const MOST_CONFIG_BYTES = 8 * 1024 * 1024;

export async function resolveImage(
  { registry }: Pick<Puller, 'registry'>,
  reference: ImageReference,
  signal: AbortSignal | undefined,
): Promise<Resolved> {
  const what = `image "${canonicalName(reference)}"`;
  const scope = signal && { signal };
  const first = await registry.manifest(reference, scope);
  let parsed = parseManifest(first.bytes, what);
  if ('index' in parsed) {
    const { digest } = chooseManifest(parsed.index, thisArchitecture(), what);
    parsed = parseManifest((await registry.manifest({ ...reference, digest }, scope)).bytes, what);
  }
  if ('index' in parsed)
    throw new CayError('invalid_argument', `Cannot use ${what}: its index leads to an index`);
  const { manifest } = parsed;
  const bytes = await registry.document(reference, manifest.config.digest, {
    mostBytes: MOST_CONFIG_BYTES,
    ...scope,
  });
  const file = parseConfig(bytes, what);
  requirePlatform(file, thisArchitecture(), what);
  if (file.diffIds.length !== manifest.layers.length) {
    throw new CayError(
      'invalid_argument',
      `Cannot use ${what}: it has ${manifest.layers.length} layers, and its configuration ${file.diffIds.length}`,
    );
  }
  return { digest: first.digest, manifest, file };
}

/** Resolves with the record of the whole image. The caller gives it names. */
export async function pullImage(
  puller: Puller,
  reference: ImageReference,
  { ids, meter, signal }: { ids: IdMapping; meter: ProgressMeter; signal: AbortSignal },
): Promise<ImageRecord> {
  const { index, layers, treeBytes } = { ...puller, treeBytes: puller.index.treeBytes };
  const resolved = await resolveImage(puller, reference, signal);
  const { digest, manifest, file } = resolved;
  requireSize(puller, reference, manifest);
  const names = treesOf(file, ids);
  const record = recordOf(puller, reference, resolved, { ids, trees: names });
  if (record.state === 'whole' && (await layers.has(names.at(-1)!))) return record;
  record.state = 'pulling';
  index.images.set(digest, record);
  await index.save();
  await faultPoint('images.pull.recorded');

  const there = await layersThere(layers, names);
  const missing = manifest.layers.slice(there);
  meter.begin(missing);
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  for (const { digest: blob } of missing) puller.blobUsers.set(blob, (puller.blobUsers.get(blob) ?? 0) + 1);
  const fetches = new Map(
    missing.map((layer) => [layer.digest, fetchLayer(puller, reference, layer, meter, either)]),
  );
  for (const fetch of fetches.values()) inBackground(fetch, ignoreFailure);
  let isPassing = true;
  try {
    await assemble({
      ...puller,
      file,
      ids,
      treeBytes,
      mostBytes: puller.maxImageBytes,
      signal: either,
      async open(at) {
        const layer = manifest.layers[at]!;
        // A tree that was there a moment ago may have been collected.
        await (fetches.get(layer.digest) ?? fetchLayer(puller, reference, layer, meter, either));
        return createReadStream(puller.blobs.path(layer.digest), { highWaterMark: 1 << 20 });
      },
      onLayer: (at, state) => meter.layer(manifest.layers[at]!.digest, { state }),
    });
    record.state = 'whole';
    record.pulledAtMs = puller.now();
  } catch (error) {
    // What will never be right is not kept for another attempt.
    isPassing = !isCayError(error, 'invalid_argument') && !isCayError(error, 'resource_exhausted');
    throw signal.aborted ? signal.reason : error;
  } finally {
    ended.abort();
    await Promise.allSettled(fetches.values());
    if (record.state !== 'whole' && !isPassing) index.images.delete(digest);
    await letGo(
      puller,
      missing.map((layer) => layer.digest),
      record.state === 'whole' || !isPassing,
    );
    if (!isPassing) await index.save().catch(() => {});
  }
  return record;
}

async function fetchLayer(
  { blobs, registry, fetches, fetching }: Puller,
  reference: ImageReference,
  layer: Manifest['layers'][number],
  meter: ProgressMeter,
  signal: AbortSignal,
): Promise<void> {
  const { digest } = layer;
  await joinOrDo(
    fetching,
    digest,
    () =>
      fetches.run(async () => {
        signal.throwIfAborted();
        meter.layer(digest, { state: 'fetching' });
        await blobs.fetch(layer, {
          open: (offset) => registry.blob(reference, digest, { offset, signal }),
          onBytes: (fetchedBytes) => meter.layer(digest, { fetchedBytes }),
          signal,
        });
      }),
    signal,
  );
  meter.layer(digest, { state: 'fetched', fetchedBytes: layer.size });
  await faultPoint('images.pull.fetched');
}

/** Removes blobs that no other pull needs. */
async function letGo({ blobs, blobUsers }: Puller, digests: string[], remove: boolean): Promise<void> {
  for (const digest of digests) {
    const users = (blobUsers.get(digest) ?? 1) - 1;
    if (users > 0) blobUsers.set(digest, users);
    else {
      blobUsers.delete(digest);
      if (remove) await blobs.remove(digest);
    }
  }
}

function recordOf(
  { index, now }: Puller,
  { registry, repository }: ImageReference,
  { digest, manifest, file }: Resolved,
  { ids, trees }: { ids: IdMapping; trees: string[] },
): ImageRecord {
  const known = index.images.get(digest);
  const owner = `${ids.hostId}:${ids.size}`;
  const repositories = new Set([...(known?.repositories ?? []), `${registry}/${repository}`]);
  return {
    digest,
    state: known?.owner === owner ? known.state : 'pulling',
    repositories: [...repositories],
    config: file.config,
    layers: manifest.layers.map(({ digest: blob, size }, at) => ({
      digest: blob,
      diffId: file.diffIds[at]!,
      sizeBytes: size,
    })),
    trees,
    owner,
    pulledAtMs: known?.pulledAtMs ?? now(),
    usedAtMs: now(),
  };
}

function requireSize({ maxImageBytes }: Puller, reference: ImageReference, { layers }: Manifest): void {
  const bytes = layers.reduce((sum, { size }) => sum + size, 0);
  if (bytes <= maxImageBytes) return;
  throw new CayError(
    'resource_exhausted',
    `Image "${canonicalName(reference)}" has ${bytes} bytes, more than the ${maxImageBytes} that one may have`,
    { hint: '--max-image-size of "cay up" sets how large one may be' },
  );
}
