/** Fetching an image from its registry: documents first, then its missing layers side by side, into trees. */
import { createReadStream } from 'node:fs';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { inBackground, ignoreFailure } from '../../lib/in-background.ts';
import type { Semaphore } from '../../lib/semaphore.ts';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { assemble, layersThere, treesOf } from './assemble.ts';
import { blobKey, type Blobs } from './blobs.ts';
import type { ImageAccounts } from './image-accounts.ts';
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
  accounts: ImageAccounts;
  fetching: Map<string, Promise<void>>;
  /** How many pulls there are of each image, by its digest. */
  pulling: Map<string, number>;
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

interface PullOne {
  ids: IdMapping;
  project: string | undefined;
  meter: ProgressMeter;
  /** Layers that are fetched at once. */
  fetches: Semaphore;
  signal: AbortSignal;
}

/** Resolves with the record of the whole image, when `keep` has kept it. */
export async function pullImage(
  puller: Puller,
  reference: ImageReference,
  one: PullOne,
  keep: (record: ImageRecord) => Promise<void>,
): Promise<ImageRecord> {
  const { pulling } = puller;
  const resolved = await resolveImage(puller, reference, one.signal);
  const { digest, manifest } = resolved;
  requireSize(puller, reference, manifest);
  pulling.set(digest, (pulling.get(digest) ?? 0) + 1);
  try {
    const record = await pullResolved(puller, reference, resolved, one);
    puller.accounts.note(record, one.project);
    await keep(record);
    return record;
  } finally {
    const left = pulling.get(digest)! - 1;
    if (left === 0) pulling.delete(digest);
    else pulling.set(digest, left);
  }
}

async function pullResolved(
  puller: Puller,
  reference: ImageReference,
  resolved: Resolved,
  one: PullOne,
): Promise<ImageRecord> {
  const { ids, project, meter, signal } = one;
  const { accounts, index, layers, treeBytes } = { ...puller, treeBytes: puller.index.treeBytes };
  const { digest, manifest, file } = resolved;
  const names = treesOf(file, ids);
  const record = recordOf(puller, reference, resolved, { ids, trees: names });
  if (record.state === 'whole' && (await layers.has(names.at(-1)!))) {
    await accounts.admit(project, record, newBytesOf(puller, record, project));
    return record;
  }
  record.state = 'pulling';
  const there = await layersThere(layers, names);
  const missing = manifest.layers.slice(there);
  // What they have when they are unpacked is not known yet.
  await accounts.admit(
    project,
    record,
    missing.reduce((sum, { size }) => sum + size, newBytesOf(puller, record, project)),
  );
  accounts.note(record, project);
  index.images.set(digest, record);
  await index.save();
  await faultPoint('images.pull.recorded');

  meter.begin(missing);
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const keyOf = (layer: { digest: string }) => blobKey(repositoryOf(reference), layer.digest);
  for (const blob of missing.map(keyOf)) puller.blobUsers.set(blob, (puller.blobUsers.get(blob) ?? 0) + 1);
  const fetch = (layer: Manifest['layers'][number]) =>
    fetchLayer(puller, reference, layer, { ...one, signal: either });
  const fetches = new Map(missing.map((layer) => [layer.digest, fetch(layer)]));
  for (const under of fetches.values()) inBackground(under, ignoreFailure);
  let isPassing = true;
  try {
    const unpacked = () =>
      assemble({
        ...puller,
        file,
        ids,
        treeBytes,
        mostBytes: () => accounts.mostBytes(project, record, puller.maxImageBytes),
        signal: either,
        async ready(at) {
          const layer = manifest.layers[at]!;
          // A tree that was there a moment ago may have been collected.
          await (fetches.get(layer.digest) ?? fetch(layer));
        },
        open: async (at) =>
          createReadStream(puller.blobs.path(keyOf(manifest.layers[at]!)), { highWaterMark: 1 << 20 }),
        onLayer: (at, state) => meter.layer(manifest.layers[at]!.digest, { state }),
      });
    for (let isDone = false; !isDone;) {
      try {
        await unpacked();
        isDone = true;
      } catch (error) {
        if (!isCayError(error, 'resource_exhausted')) throw error;
        if (!(await accounts.makeRoom(project, record, puller.maxImageBytes))) throw error;
      }
    }
    record.state = 'whole';
    record.pulledAtMs = puller.now();
  } catch (error) {
    // What will never be right is not kept for another attempt.
    isPassing = !isCayError(error, 'invalid_argument') && !isCayError(error, 'resource_exhausted');
    if (signal.aborted) throw signal.reason;
    throw (isCayError(error, 'resource_exhausted') && (await explained(puller, record, project))) || error;
  } finally {
    ended.abort();
    await Promise.allSettled(fetches.values());
    if (record.state !== 'whole' && !isPassing && index.images.get(digest) === record)
      index.images.delete(digest);
    await letGo(puller, missing.map(keyOf), record.state === 'whole' || !isPassing);
    if (!isPassing) await index.save().catch(() => {});
  }
  return record;
}

const repositoryOf = ({ registry, repository }: ImageReference) => `${registry}/${repository}`;

/** What a project pays for an image that it has not used yet: all that is there of it and not its own. */
function newBytesOf({ accounts }: Puller, record: ImageRecord, project: string | undefined): number {
  if (project === undefined || record.users?.[project] !== undefined) return 0;
  return accounts.newBytes(project, record.trees);
}

const explained = ({ accounts, maxImageBytes }: Puller, record: ImageRecord, project: string | undefined) =>
  accounts.explain(project, record, maxImageBytes);

async function fetchLayer(
  { blobs, registry, fetching }: Puller,
  reference: ImageReference,
  layer: Manifest['layers'][number],
  { fetches, meter, signal }: Pick<PullOne, 'fetches' | 'meter' | 'signal'>,
): Promise<void> {
  const { digest } = layer;
  const key = blobKey(repositoryOf(reference), digest);
  const fetch = async () => {
    signal.throwIfAborted();
    meter.layer(digest, { state: 'fetching' });
    await blobs.fetch(key, layer, {
      open: (offset) => registry.blob(reference, digest, { offset, signal }),
      onBytes: (fetchedBytes) => meter.layer(digest, { fetchedBytes }),
      signal,
    });
  };
  // The turn is taken first: who joins waits for a fetch that runs, never for another project's turn.
  await fetches.run(() => joinOrDo(fetching, key, fetch, signal));
  meter.layer(digest, { state: 'fetched', fetchedBytes: layer.size });
  await faultPoint('images.pull.fetched');
}

/** Removes blobs that no other pull needs. */
async function letGo({ blobs, blobUsers }: Puller, keys: string[], remove: boolean): Promise<void> {
  for (const key of keys) {
    const users = (blobUsers.get(key) ?? 1) - 1;
    if (users > 0) blobUsers.set(key, users);
    else {
      blobUsers.delete(key);
      if (remove) await blobs.remove(key);
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
    ...(known?.users && { users: known.users }),
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
