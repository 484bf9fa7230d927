import { CayError } from '@cay/sdk/protocol';
import type { CallScope, SnapshotFiles } from '../backend.ts';
import { fileError } from './errno.ts';
import { contentOf, type FileNode } from './file-node.ts';
import { partsOf, type FileTree } from './file-tree.ts';
import { packTree } from './tar-pack.ts';
import { ROOT } from './users.ts';

/** Reads the files of the tree that `open` gives, whatever their modes. No symlink is followed. */
export function snapshotFiles(open: (options?: CallScope) => FileTree): SnapshotFiles {
  function find(tree: FileTree, path: string): FileNode {
    if (!path.startsWith('/') || path.includes('\u0000')) throw fileError('EINVAL', path);
    let node: FileNode = tree.root;
    for (const part of partsOf(path)) {
      const next: FileNode | undefined = node.type === 'directory' ? node.entries.get(part) : undefined;
      if (!next) throw fileError('ENOENT', path);
      node = next;
    }
    return node;
  }

  return {
    async *read(path, options) {
      const node = find(open(options), path);
      if (node.type === 'file') yield contentOf(node).slice();
      else if (node.type === 'symlink') yield Buffer.from(node.target);
      else
        throw new CayError(
          'failed_precondition',
          `Cannot read ${JSON.stringify(path)}: it is neither a file nor a symlink`,
        );
    },

    async *tar(paths, options) {
      const tree = open(options);
      if (paths.length === 0)
        throw new CayError('invalid_argument', 'Cannot archive 0 paths: name one at least');
      for (const path of paths) find(tree, path);
      yield* packTree(
        tree,
        ROOT,
        '/',
        paths.map((path) => partsOf(path).join('/')),
      );
    },
  };
}
