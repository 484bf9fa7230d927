/**
 * The trees of images: one for each step of a chain, each a clone of the one before with one more layer.
 *
 * A step is made in an active tree and committed under the name of its chain when it is whole, so that a
 * committed tree is always right, whatever was killed when. Two calls that need the same step make it once.
 */
import { createHash } from 'node:crypto';
import { isCayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { joinOrDo } from './join-or-do.ts';
import { unpackTree } from '../archives/tree-process.ts';
import type { IdMapping } from '../runtimes/runtime.ts';
import type { Snapshotter } from '../snapshots/snapshotter.ts';

export const LAYER_FAULTS = [
  'images.layer.prepared',
  'images.layer.unpacked',
  'images.layer.committed',
] as const;

/** A step of a chain: a tree and how it comes from the one before. */
export interface Step {
  tree: string;
  /** The archive to unpack. Read only if the tree is not there. */
  open(signal: AbortSignal | undefined): Promise<AsyncIterable<Uint8Array>> | AsyncIterable<Uint8Array>;
}

export interface LayerTreesOptions {
  trees: Snapshotter;
  guestBinary: string;
}

export interface LayerTrees {
  has(tree: string): Promise<boolean>;
  /** Makes the step's tree from `parent`, unless it is there. */
  make(
    step: Step,
    parent: string | undefined,
    options: { ids: IdMapping; quotaBytes: number; signal?: AbortSignal | undefined },
  ): Promise<void>;
  /** All trees of images, committed or under way. */
  list(): Promise<{ name: string; parent?: string; built: boolean }[]>;
  /** Removes a tree. Resolves false if something depends on it. */
  remove(tree: string): Promise<boolean>;
  /** Names of trees that are not to be removed now. */
  readonly making: ReadonlyMap<string, unknown>;
}

/** Raised when what makes trees changes, so that older ones are not used again. */
const LAYOUT = 1;
const PREFIX = 'image-';
const BUILD = 'imagebuild-';
const DIGITS = 48;
/** Files take memory of the filesystem even when they are empty. */
const MOST_ENTRIES = 1_500_000;

/** The names of the trees of a chain. `diffIds` are of its layers, lowest first. */
export function chainTrees(diffIds: readonly string[], ids: IdMapping): string[] {
  const names: string[] = [];
  let chain = `${LAYOUT} ${ids.hostId}:${ids.size}`;
  for (const diffId of diffIds) {
    chain = createHash('sha256').update(`${chain} ${diffId}`).digest('hex');
    names.push(`${PREFIX}${chain.slice(0, DIGITS)}`);
  }
  return names;
}

export function layerTrees({ trees, guestBinary }: LayerTreesOptions): LayerTrees {
  const making = new Map<string, Promise<void>>();

  async function has(tree: string): Promise<boolean> {
    return (await trees.list()).some(({ name, kind }) => name === tree && kind === 'committed');
  }

  async function build(
    { tree, open }: Step,
    parent: string | undefined,
    { ids, quotaBytes, signal }: Parameters<LayerTrees['make']>[2],
  ): Promise<void> {
    if (await has(tree)) return;
    const key = buildKey(tree);
    // Of a server that was killed, or of a failure.
    await trees.remove(key);
    const path = await trees.prepare(key, {
      ...(parent !== undefined && { parent }),
      ...(trees.capabilities.quota && { quotaBytes }),
    });
    try {
      await faultPoint('images.layer.prepared');
      const layer = { mostEntries: MOST_ENTRIES };
      await unpackTree({ path, ids }, await open(signal), { guestBinary, layer, ...(signal && { signal }) });
      await faultPoint('images.layer.unpacked');
      await trees.commit(tree, key);
      await faultPoint('images.layer.committed');
    } finally {
      await trees.remove(key);
    }
  }

  return {
    making,
    has,
    make: (step, parent, options) =>
      joinOrDo(making, step.tree, () => build(step, parent, options), options.signal),
    async list() {
      return (await trees.list())
        .filter(({ name }) => name.startsWith(PREFIX) || name.startsWith(BUILD))
        .map(({ name, parent }) => ({
          name,
          ...(parent !== undefined && { parent }),
          built: name.startsWith(PREFIX),
        }));
    },
    async remove(tree) {
      try {
        await trees.remove(tree);
        return true;
      } catch (error) {
        if (isCayError(error, 'failed_precondition')) return false;
        throw error;
      }
    },
  };
}

export function buildKey(tree: string): string {
  return `${BUILD}${tree.slice(PREFIX.length)}`;
}
