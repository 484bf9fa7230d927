import type { FileChange } from '@cay/sdk/protocol';
import { contentOf, type FileNode } from './file-node.ts';
import { byBytes, infoOf, type FileTree } from './file-tree.ts';

/**
 * What became of the files of one tree in a later copy of it, in the order of paths.
 *
 * A file is followed by which file it is: one that is found elsewhere was moved. A path that has another file
 * of the same type now was modified.
 */
export function treeChanges(from: FileTree, to: FileTree): FileChange[] {
  const before = pathsOf(from);
  const after = pathsOf(to);
  const bySerial = Map.groupBy(before, ([, { serial }]) => serial);
  const stays = (path: string, serial: number) =>
    before.get(path)?.serial === serial && after.get(path)?.serial === serial;
  /** Those that have a name which they had not. */
  const moved = new Set(
    [...after].filter(([path, { serial }]) => !stays(path, serial)).map(([, { serial }]) => serial),
  );
  /** Those of `before` that are known to be somewhere in `after`. */
  const found = new Set<string>();
  const changes: FileChange[] = [];

  /** `expected` is where it was if only directories above it have moved. */
  function originOf(node: FileNode, expected: string | undefined): string | undefined {
    const old = expected === undefined ? undefined : before.get(expected);
    if (old?.serial === node.serial) return expected;
    const elsewhere = bySerial
      .get(node.serial)
      ?.find(([path, { serial }]) => !found.has(path) && !stays(path, serial))?.[0];
    if (elsewhere !== undefined) return elsewhere;
    return old && old.type === node.type && !moved.has(old.serial) ? expected : undefined;
  }

  function visit(path: string, node: FileNode, expected: string | undefined): void {
    const origin = originOf(node, expected);
    const old = origin === undefined ? undefined : before.get(origin);
    if (origin !== undefined) found.add(origin);
    const difference = {
      content: differs(old, node),
      mode: old?.mode !== node.mode,
      owner: old?.uid !== node.uid || old.gid !== node.gid,
    };
    if (!old || origin === undefined)
      changes.push({ path, change: 'added', ...described(node), after: facts(node), ...NOTHING });
    else if (origin !== expected || difference.content || difference.mode || difference.owner) {
      const change =
        origin === expected ? { change: 'modified' as const } : { change: 'renamed' as const, from: origin };
      changes.push({
        path,
        ...change,
        ...described(node),
        before: facts(old),
        after: facts(node),
        ...difference,
      });
    }
    if (node.type !== 'directory') return;
    for (const [name, child] of node.entries)
      visit(join(path, name), child, origin === undefined ? undefined : join(origin, name));
  }

  visit('/', to.root, '/');
  for (const [path, node] of before) {
    if (!found.has(path))
      changes.push({ path, change: 'removed', ...described(node), before: facts(node), ...NOTHING });
  }
  // What was removed comes before what has its name now.
  const rank = ({ change }: FileChange) => (change === 'removed' ? 0 : 1);
  return changes.sort((a, b) => byBytes(a.path, b.path) || rank(a) - rank(b));
}

const NOTHING = { content: false, mode: false, owner: false };

const join = (path: string, name: string) => (path === '/' ? `/${name}` : `${path}/${name}`);

function pathsOf(tree: FileTree): Map<string, FileNode> {
  const paths = new Map<string, FileNode>();
  const walk = (path: string, node: FileNode) => {
    paths.set(path, node);
    if (node.type === 'directory') for (const [name, child] of node.entries) walk(join(path, name), child);
  };
  walk('/', tree.root);
  return paths;
}

const described = (node: FileNode): Pick<FileChange, 'type'> => ({
  type: node.type === 'char' ? 'other' : node.type,
});

const facts = (node: FileNode) => ({
  size: infoOf(node, '/').sizeBytes,
  mode: node.mode,
  uid: node.uid,
  gid: node.gid,
});

function differs(old: FileNode | undefined, node: FileNode): boolean {
  if (old?.type === 'file' && node.type === 'file')
    return !Buffer.from(contentOf(old)).equals(contentOf(node));
  return old?.type === 'symlink' && node.type === 'symlink' && old.target !== node.target;
}
