/** Which images and trees are removed: unused ones, until the rest fits, from those who have too much. */
import { blobKey, type Blobs } from './blobs.ts';
import type { ImageIndex, ImageRecord } from './image-index.ts';
import { buildKey, type LayerTrees } from './layer-trees.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';

export interface Collecting {
  index: ImageIndex;
  layers: LayerTrees;
  trees: Snapshotter;
  blobs: Blobs;
  /** Blobs that a pull needs now. */
  blobUsers: ReadonlyMap<string, unknown>;
  /** Digests of images that are being pulled now. */
  isPulling(digest: string): boolean;
  now(): number;
}

/** For so long a pull that was interrupted keeps its layers. */
const ABANDONED_MS = 24 * 3600_000;

/** Whether a sandbox, a snapshot or a clone that waits for one uses the image. */
export async function isInUse(collecting: Pick<Collecting, 'trees'>, image: ImageRecord): Promise<boolean> {
  const used = await usedTrees(collecting);
  return image.trees.some((tree) => used.has(tree));
}

/** Trees that something other than an image was made from. */
async function usedTrees({ trees }: Pick<Collecting, 'trees'>): Promise<ReadonlySet<string>> {
  const others = (await trees.list()).filter(({ name }) => !/^image(build)?-/.test(name));
  return new Set(others.flatMap(({ parent }) => parent ?? []));
}

/** Resolves the digests of images that were removed. */
export async function collect(collecting: Collecting, maxBytes: number): Promise<string[]> {
  const { index, now, isPulling } = collecting;
  const gone: string[] = [];
  for (const [digest, image] of index.images) {
    if (image.state === 'whole' || isPulling(digest) || now() - image.usedAtMs < ABANDONED_MS) continue;
    index.images.delete(digest);
  }
  const parents = await usedTrees(collecting);
  const isFree = (image: ImageRecord) =>
    !isPulling(image.digest) && !image.trees.some((tree) => parents.has(tree));
  const drop = ({ digest }: ImageRecord) => {
    forget(index, digest);
    gone.push(digest);
  };
  // The projects that used it have given it up.
  for (const image of [...index.images.values()])
    if (image.users && Object.keys(image.users).length === 0 && isFree(image)) drop(image);
  while (bytesOf(index) > maxBytes) {
    const next = nextToGo(index, maxBytes, isFree);
    if (!next) break;
    const { image, project } = next;
    if (project !== undefined) {
      const { [project]: _gone, ...others } = image.users!;
      image.users = others;
    }
    if (Object.keys(image.users ?? {}).length === 0) drop(image);
  }
  // Trees are removed after their image has left the index: a crash in between leaves trees that no record
  // names.
  await index.save();
  await sweepTrees(collecting);
  await sweepBlobs(collecting);
  return gone;
}

/**
 * The image to remove next, and the project that gives it up. Images of no project come first, then those of
 * the project that has most above an equal share, the longest unused first. A project at or below its share
 * loses nothing.
 */
function nextToGo(
  { images, treeBytes }: ImageIndex,
  maxBytes: number,
  isFree: (image: ImageRecord) => boolean,
): { image: ImageRecord; project?: string } | undefined {
  const free = [...images.values()].filter(isFree).toSorted((a, b) => a.usedAtMs - b.usedAtMs);
  const unowned = free.find(({ users }) => users === undefined);
  if (unowned) return { image: unowned };
  const trees = new Map<string, Set<string>>();
  for (const image of images.values())
    for (const project of Object.keys(image.users ?? {}))
      trees.set(project, new Set([...(trees.get(project) ?? []), ...image.trees]));
  const share = maxBytes / trees.size;
  const over = [...trees]
    .map(([project, own]) => ({
      project,
      bytes: [...own].reduce((sum, tree) => sum + (treeBytes.get(tree) ?? 0), 0),
    }))
    .filter(({ bytes }) => bytes > share)
    .toSorted((a, b) => b.bytes - a.bytes);
  for (const { project } of over) {
    const [image] = free
      .filter(({ users }) => users?.[project] !== undefined)
      .toSorted((a, b) => a.users![project]! - b.users![project]!);
    if (image) return { image, project };
  }
  return undefined;
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
  const needed = unfinished.flatMap(({ layers, repositories }) =>
    layers.flatMap(({ digest }) => repositories.map((each) => blobKey(each, digest))),
  );
  await blobs.keep(new Set([...needed, ...blobUsers.keys()]));
}
