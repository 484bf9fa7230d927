import { CayError } from '@cay/sdk/protocol';
import { packTree, type Tree, type TreeProcessOptions } from './tree-process.ts';

/** They are passed as arguments of a program. */
const MOST_PATHS = 1000;

/**
 * These paths of a tree, with everything below them, as a POSIX pax archive with names relative to the tree.
 * Follows no symlink.
 */
export async function* tarPaths(
  options: Tree & TreeProcessOptions & { paths: string[] },
): AsyncGenerator<Uint8Array, void, undefined> {
  const { paths } = options;
  if (paths.length === 0 || paths.length > MOST_PATHS) {
    throw new CayError(
      'invalid_argument',
      `Cannot archive ${paths.length} paths: from 1 to ${MOST_PATHS} can be`,
    );
  }
  for (const path of paths) {
    if (path.length > 4096 || path.includes('\0'))
      throw new CayError('invalid_argument', `Cannot archive "${path.slice(0, 100)}": it is no path`);
  }
  yield* packTree(options, options);
}
