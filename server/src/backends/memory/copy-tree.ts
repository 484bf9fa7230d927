import { contentOf, type Directory, type FileNode } from './file-node.ts';
import { fileTree, type FileTree } from './file-tree.ts';

/**
 * The same files in a tree of their own, without what is mounted. Content is shared until one of them changes
 * a file.
 */
export function copyTree(tree: FileTree): FileTree {
  // A file with two names is one file in the copy too.
  const copies = new Map<FileNode, FileNode>();

  const covered = new Map<FileNode, Directory>();
  for (const { root, covered: hidden } of tree.mounts.values()) covered.set(root, hidden);

  function copy(given: FileNode): FileNode {
    const node = covered.get(given) ?? given;
    const known = copies.get(node);
    if (known) return known;
    const xattrs = new Map(node.xattrs);
    // Cut to its size, so that appending to the copy does not write into what the other has room for.
    const made: FileNode =
      node.type === 'file'
        ? { ...node, xattrs, data: contentOf(node) }
        : node.type === 'directory'
          ? {
              ...node,
              xattrs,
              entries: new Map([...node.entries].map(([name, child]) => [name, copy(child)])),
            }
          : { ...node, xattrs };
    copies.set(node, made);
    return made;
  }

  const made = fileTree(copy(tree.root) as Directory);
  made.usedBytes = tree.usedBytes;
  return made;
}
