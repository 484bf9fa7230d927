/** Which images and trees are removed: unused ones, until the rest fits. */
import type { Blobs } from './blobs.ts';
import type { ImageIndex, ImageRecord } from './image-index.ts';
import { buildKey, type LayerTrees } from './layer-trees.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';

export interface Collecting {
  index: ImageIndex;
  layers: LayerTrees;
  trees: Snapshotter;
  blobs: Blobs;
  /** Digests of blobs that a pull needs now. */
  blobUsers: ReadonlyMap<string, unknown>;
  /** Digests of images that are being pulled now. */
  isPulling(digest: string): boolean;
  now(): number;
}

/** A pull that nobody has gone on with for so long does not keep its layers any more. */
const ABANDONED_MS = 24 * 3600_000;

/** Whether a sandbox, a snapshot or a clone that waits for one uses the image. */
export async function isInUse({ trees }: Pick<Collecting, 'trees'>, image: ImageRecord): Promise<boolean> {
  const own = new Set(image.trees);
  return (await trees.list()).some(
    ({ name, parent }) => parent !== undefined && own.has(parent) && !/^image(build)?-/.test(name),
  );
}

/** Resolves the digests of images that were removed. */
export async function collect(collecting: Collecting, maxBytes: number): Promise<string[]> {
  const { index, now, isPulling } = collecting;
  const gone: string[] = [];
  for (const [digest, image] of index.images) {
    if (image.state === 'whole' || isPulling(digest) || now() - image.usedAtMs < ABANDONED_MS) continue;
    index.images.delete(digest);
  }
  const oldest = [...index.images.values()].sort((a, b) => a.usedAtMs - b.usedAtMs);
  for (const image of oldest) {
    if (bytesOf(index) <= maxBytes) break;
    if (isPulling(image.digest) || (await isInUse(collecting, image))) continue;
    forget(index, image.digest);
    gone.push(image.digest);
  }
  // What has gone from the index goes from the disk: a crash between both leaves trees that no record names.
  await index.save();
  await sweepTrees(collecting);
  await sweepBlobs(collecting);
  return gone;
}

export function forget({ images, names }: ImageIndex, digest: string): void {
  images.delete(digest);
  for (const [name, { digest: named }] of names) if (named === digest) names.delete(name);
}

/** Of all images, what they share counted once. */
function bytesOf({ images, treeBytes }: ImageIndex): number {
  const used = new Set([...images.values()].flatMap(({ trees }) => trees));
  return [...used].reduce((sum, tree) => sum + (treeBytes.get(tree) ?? 0), 0);
}

/** Removes trees that no image has, children before their parents. */
async function sweepTrees({ index, layers }: Collecting): Promise<void> {
  const kept = new Set([...index.images.values()].flatMap(({ trees }) => trees));
  const underWay = new Set([...layers.making.keys()].flatMap((tree) => [tree, buildKey(tree)]));
  let lost = (await layers.list()).filter(({ name }) => !kept.has(name) && !underWay.has(name));
  for (let before = lost.length + 1; lost.length < before && lost.length > 0;) {
    before = lost.length;
    const parents = new Set(lost.map(({ parent }) => parent));
    for (const { name } of lost) {
      if (!parents.has(name) && (await layers.remove(name))) index.treeBytes.delete(name);
    }
    const left = new Set((await layers.list()).map(({ name }) => name));
    lost = lost.filter(({ name }) => left.has(name));
  }
}

async function sweepBlobs({ index, blobs, blobUsers }: Collecting): Promise<void> {
  const unfinished = [...index.images.values()].filter(({ state }) => state === 'pulling');
  const needed = unfinished.flatMap(({ layers }) => layers.map(({ digest }) => digest));
  await blobs.keep(new Set([...needed, ...blobUsers.keys()]));
}
