import type { FileChange } from '@cay/sdk/protocol';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import { resourceError } from '../resource-error.ts';
import type { KnownTrees } from './known-trees.ts';
import type { CommittedTree, TreeDriver } from './tree-driver.ts';

interface Comparing {
  driver: TreeDriver;
  trees: KnownTrees;
}

/**
 * The directory of a committed tree. With `done`, the tree is not removed before that settles. Waits for a
 * tree that is being committed.
 */
export async function committedTree(
  { driver, trees }: Comparing,
  name: string,
  done?: Promise<void>,
): Promise<CommittedTree> {
  return trees.enqueue(name, async () => {
    const tree = trees.all.get(name);
    if (tree?.state !== 'here' || tree.record.kind !== 'committed')
      throw resourceError(
        'not_found',
        { kind: 'tree', name },
        (named) => `Cannot find ${named} among the committed`,
      );
    const path = await driver.committedPath(name, tree.record);
    if (done) {
      const readers = (tree.readers ??= new Set());
      readers.add(done);
      inBackground(
        done.then(() => readers.delete(done)),
        ignoreFailure,
      );
    }
    return { name, path };
  });
}

/** What differs between two committed trees, neither of which is removed meanwhile. */
export async function compareCommitted(
  on: Comparing,
  [from, to]: readonly [string, string],
  signal: AbortSignal | undefined,
): Promise<FileChange[]> {
  const { promise, resolve } = Promise.withResolvers<void>();
  try {
    const held = new Map<string, CommittedTree>();
    // Always in the same order, so that concurrent comparisons and removals cannot deadlock.
    for (const name of [from, to].sort()) held.set(name, await committedTree(on, name, promise));
    return from === to ? [] : await on.driver.compare(held.get(from)!, held.get(to)!, signal);
  } finally {
    resolve();
  }
}
