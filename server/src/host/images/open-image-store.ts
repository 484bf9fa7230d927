import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { openBlobs } from './blobs.ts';
import { collect, forget, isInUse, type Collecting } from './collect.ts';
import type { Image, ImageStore } from './image.ts';
import { ImageAccounts } from './image-accounts.ts';
import { openImageIndex, type ImageRecord } from './image-index.ts';
import { imagePulls } from './image-pulls.ts';
import { importImages } from './import-image.ts';
import { layerTrees } from './layer-trees.ts';
import { resolveImage, type Puller } from './pull-image.ts';
import { canonicalName, taggedPart, type ImageReference } from './reference.ts';
import { openRegistry, type RegistrySettings } from './registry/registry.ts';

export interface ImageSettings extends RegistrySettings {
  /** What the trees of all images may take. Default 64 GiB. */
  maxStoreBytes?: number;
  /** What one image may have when it is unpacked. Default 16 GiB. */
  maxImageBytes?: number;
}

export interface ImageStoreOptions {
  dir: string;
  trees: Snapshotter;
  guestBinary: string;
  settings?: ImageSettings;
  now?(): number;
  onError?(error: unknown): void;
}

const GiB = 1024 ** 3;
/** Names that lead to one image. */
const MOST_NAMES = 64;

export async function openImageStore(options: ImageStoreOptions): Promise<ImageStore> {
  const { dir, trees, guestBinary, settings = {}, now = Date.now, onError = () => {} } = options;
  const { maxStoreBytes = 64 * GiB, maxImageBytes = 16 * GiB } = settings;
  const index = await openImageIndex(dir);
  const uploads = join(dir, 'uploads');
  await rm(uploads, { recursive: true, force: true });
  const puller: Puller = {
    registry: openRegistry(settings),
    index,
    blobs: await openBlobs(join(dir, 'blobs')),
    layers: layerTrees({ trees, guestBinary }),
    trees,
    guestBinary,
    accounts: new ImageAccounts(index, now),
    fetching: new Map(),
    pulling: new Map(),
    blobUsers: new Map(),
    maxImageBytes,
    now,
  };
  const { accounts } = puller;
  /** Trees of an archive that is being taken in are in no record yet. */
  let importing = 0;
  const collecting: Collecting = { ...puller, isPulling: (digest) => puller.pulling.has(digest) };
  let collected: Promise<unknown> = Promise.resolve();

  function collectNow(maxBytes: number): Promise<string[]> {
    const next = collected.catch(() => {}).then(() => (importing > 0 ? [] : collect(collecting, maxBytes)));
    collected = next;
    return next;
  }

  /** The record that a name leads to. What another repository gave is not its own. */
  function recordAt(reference: ImageReference): ImageRecord | undefined {
    const { digest: named, ...tagged } = reference;
    const digest = named ?? index.names.get(canonicalName(tagged))?.digest;
    const record = digest === undefined ? undefined : index.images.get(digest);
    if (record?.state !== 'whole') return undefined;
    return record.repositories.includes(`${reference.registry}/${reference.repository}`) ? record : undefined;
  }

  function show(record: ImageRecord): Image {
    const { digest, config, layers, pulledAtMs, usedAtMs } = record;
    const names = [...index.names].flatMap(([name, to]) => (to.digest === digest ? [name] : []));
    return {
      digest,
      names: names.length > 0 ? names.sort() : record.repositories.map((each) => `${each}@${digest}`),
      config,
      layers: layers.length,
      sizeBytes: record.trees.reduce((sum, tree) => sum + (index.treeBytes.get(tree) ?? 0), 0),
      pulledAtMs,
      usedAtMs,
    };
  }

  async function keep(record: ImageRecord, names: readonly string[]): Promise<void> {
    index.images.set(record.digest, record);
    for (const name of names) index.names.set(name, { digest: record.digest, atMs: now() });
    const all = [...index.names].filter(([, { digest }]) => digest === record.digest);
    if (names.length > 0 && all.length > MOST_NAMES)
      for (const [name] of all.toSorted(([, a], [, b]) => b.atMs - a.atMs).slice(MOST_NAMES))
        index.names.delete(name);
    await index.save();
    await faultPoint('images.pull.done');
  }

  const pulls = imagePulls(puller, {
    keep,
    onPulled: () => inBackground(collectNow(maxStoreBytes), onError),
  });

  return {
    find(reference) {
      const record = recordAt(reference);
      return record && show(record);
    },

    async resolve(reference, { signal } = {}) {
      const known = recordAt(reference);
      if (known) return { digest: known.digest, config: known.config };
      const { digest, file } = await resolveImage(puller, reference, signal);
      return { digest, config: file.config };
    },

    async pull(reference, pullOptions) {
      return show(await pulls.pull(reference, pullOptions));
    },

    async prepare(reference, pullOptions) {
      const owner = `${pullOptions.ids.hostId}:${pullOptions.ids.size}`;
      const known = recordAt(reference);
      const isHere = known?.owner === owner && (await puller.layers.has(known.trees.at(-1)!));
      const { project } = pullOptions;
      const isNew = project !== undefined && known?.users?.[project] === undefined;
      if (isHere && isNew) await accounts.admit(project, known, accounts.newBytes(project, known.trees));
      const record = isHere ? known : await pulls.pull(reference, pullOptions);
      record.usedAtMs = now();
      accounts.note(record, project);
      return { ...show(record), tree: record.trees.at(-1)! };
    },

    async import(archive, importOptions) {
      importing++;
      // One that began before must not take this one's trees for lost.
      await collected.catch(() => {});
      try {
        const imported = await importImages(puller, uploads, archive, importOptions);
        for (const { record, names } of imported) await keep(record, names);
        return imported.map(({ record }) => show(record));
      } finally {
        importing--;
        inBackground(collectNow(maxStoreBytes), onError);
      }
    },

    progress: pulls.progress,

    list: () =>
      [...index.images.values()]
        .filter(({ state }) => state === 'whole')
        .map(show)
        .sort((a, b) => (a.names[0]! < b.names[0]! ? -1 : 1)),

    async remove(reference) {
      const record = recordAt(reference);
      if (!record)
        throw new CayError('not_found', `Image "${canonicalName(reference)}" is not here`, {
          details: { what: 'image' },
        });
      const name = canonicalName(taggedPart(reference) ?? reference);
      const others = [...index.names].filter(
        ([each, { digest }]) => digest === record.digest && each !== name,
      );
      if (reference.digest === undefined && others.length > 0) {
        index.names.delete(name);
        return index.save();
      }
      if (await isInUse(collecting, record)) {
        throw new CayError(
          'failed_precondition',
          `Cannot remove image "${canonicalName(reference)}": sandboxes or snapshots were made from it`,
          { hint: 'remove those first; the image stays as long as it is needed' },
        );
      }
      forget(index, record.digest);
      await collectNow(maxStoreBytes);
    },

    share(shares) {
      accounts.shares = shares;
    },
    taken: (project) => accounts.taken(project),

    collect: (collectOptions = {}) => collectNow(collectOptions.maxBytes ?? maxStoreBytes),

    async close() {
      await pulls.close();
      await collected.catch(() => {});
      await index.save().catch(onError);
      puller.registry.close();
    },
  };
}
