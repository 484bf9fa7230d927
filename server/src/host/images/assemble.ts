/** Makes the trees of one image, from the highest that is there already. */
import { createHash } from 'node:crypto';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';
import { layerStream } from './layer-stream.ts';
import { chainTrees, type LayerTrees, type Step } from './layer-trees.ts';
import type { ConfigFile } from './manifest.ts';
import { ABOVE, BELOW, directoriesBelow, filesAbove } from './sandbox-files.ts';

export interface AssembleOptions {
  layers: LayerTrees;
  trees: Snapshotter;
  guestBinary: string;
  file: ConfigFile;
  ids: IdMapping;
  /** What all layers may have together. Asked again for each. */
  mostBytes(): Promise<number> | number;
  /** Known sizes of trees; new ones are added. */
  treeBytes: Map<string, number>;
  /**
   * Resolves when the layer of that number can be opened. No other image that has the same layer waits
   * meanwhile.
   */
  ready?(index: number): Promise<void>;
  /** Opens the compressed layer of that number, counted from the lowest. */
  open(index: number): Promise<AsyncIterable<Uint8Array>>;
  onLayer?(index: number, state: 'unpacking' | 'done'): void;
  signal?: AbortSignal | undefined;
}

/** The names of its trees, lowest first; the last is the one to start from. */
export function treesOf({ diffIds, config }: ConfigFile, ids: IdMapping): string[] {
  const above = createHash('sha256')
    .update(JSON.stringify([ABOVE, config.volumes]))
    .digest('hex');
  return chainTrees([BELOW, ...diffIds, above], ids);
}

/** How many layers, from the lowest, need not be fetched. */
export async function layersThere(layers: LayerTrees, names: readonly string[]): Promise<number> {
  const there = new Set((await layers.list()).filter(({ built }) => built).map(({ name }) => name));
  const highest = names.findLastIndex((name) => there.has(name));
  return Math.max(0, Math.min(highest, names.length - 2));
}

export async function assemble(options: AssembleOptions): Promise<void> {
  const { layers, trees, guestBinary, file, ids, treeBytes, signal } = options;
  const names = treesOf(file, ids);
  const there = new Set((await layers.list()).filter(({ built }) => built).map(({ name }) => name));
  const from = names.findLastIndex((name) => there.has(name)) + 1;
  for (let at = from; at < names.length; at++) {
    let left = await options.mostBytes();
    for (const name of names.slice(0, at)) left -= treeBytes.get(name) ?? 0;
    const tree = names[at]!;
    const index = at - 1;
    const isLayer = at > 0 && at < names.length - 1;
    let sizeBytes = 0;
    const step: Step = {
      tree,
      async open() {
        if (at === 0) return directoriesBelow();
        if (!isLayer) {
          const path = await trees.committedPath(names[at - 1]!);
          return filesAbove({ path, ids }, { guestBinary, volumes: file.config.volumes });
        }
        const source = await options.open(index);
        options.onLayer?.(index, 'unpacking');
        return layerStream(source, {
          diffId: file.diffIds[index]!,
          mostBytes: Math.max(0, left),
          onEnd: (bytes) => (sizeBytes = bytes),
        });
      },
    };
    if (isLayer) await options.ready?.(index);
    const quotaBytes = Math.max(1024 * 1024, 2 * Math.max(0, left));
    await layers.make(step, names[at - 1], { ids, quotaBytes, signal });
    if (isLayer) options.onLayer?.(index, 'done');
    if (sizeBytes > 0) treeBytes.set(tree, sizeBytes);
  }
}
