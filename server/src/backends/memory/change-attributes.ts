import { fileError } from './errno.ts';
import type { FileNode } from './file-node.ts';
import type { FileTree } from './file-tree.ts';
import { lookUpUser, type User } from './users.ts';

interface Change {
  tree: FileTree;
  user: User;
  recursive: boolean;
}

/** Sets permissions. Only root and the owner may. */
export function setMode({ tree, user, recursive }: Change, path: string, mode: number): void {
  const place = tree.get(user, path);
  each(place.node, place.path, recursive, (node, at) => {
    tree.demandMutable(at);
    if (user.uid !== 0 && node.uid !== user.uid) throw fileError('EPERM', at);
    node.mode = mode & 0o7777;
    tree.emit('attributes', at);
  });
}

/** Sets owner and, if it is named, group. Only root may. */
export function setOwner({ tree, user, recursive }: Change, path: string, owner: string): void {
  const place = tree.get(user, path);
  const next = lookUpUser(tree, owner);
  const group = owner.includes(':') ? next.gid : undefined;
  each(place.node, place.path, recursive, (node, at) => {
    tree.demandMutable(at);
    if (user.uid !== 0) throw fileError('EPERM', at);
    node.uid = next.uid;
    node.gid = group ?? node.gid;
    tree.emit('attributes', at);
  });
}

/** Calls back for the node and, if asked to, for all below it; symlinks below are left alone. */
function each(
  node: FileNode,
  path: string,
  recursive: boolean,
  change: (node: FileNode, path: string) => void,
): void {
  change(node, path);
  if (!recursive || node.type !== 'directory') return;
  for (const [name, child] of node.entries)
    if (child.type !== 'symlink') each(child, `${path}/${name}`, true, change);
}
