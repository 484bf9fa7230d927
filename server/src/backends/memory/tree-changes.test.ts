import { describe, expect, it } from 'vitest';
import { copyTree } from './copy-tree.ts';
import { fileTree, plant, type FileTree } from './file-tree.ts';
import { treeChanges } from './tree-changes.ts';
import { ROOT } from './users.ts';

function changed(change: (tree: FileTree) => void): string[] {
  const tree = fileTree();
  for (const path of ['/a', '/b', '/dir/one', '/dir/two', '/other/x']) plant(tree, path, path);
  const before = copyTree(tree);
  change(tree);
  return treeChanges(before, copyTree(tree)).map(({ change: what, path, from, content }) =>
    [what, path, from, content && 'content'].filter(Boolean).join(' '),
  );
}

const move = (tree: FileTree, from: string, to: string) =>
  tree.rename(ROOT, tree.get(ROOT, from), tree.find(ROOT, to));

describe('what differs between two trees', () => {
  it('is nothing when nothing was done', () => {
    expect(changed(() => {})).toEqual([]);
  });

  it('tells a file that was replaced by another as modified', () => {
    expect(changed((tree) => plant(tree, '/a', 'new'))).toEqual(['modified /a content']);
  });

  it('tells a file that was moved over another by its own history', () => {
    expect(changed((tree) => move(tree, '/a', '/b'))).toEqual(['removed /b', 'renamed /b /a']);
  });

  it('tells a file that has made room for another', () => {
    const found = changed((tree) => {
      move(tree, '/a', '/c');
      plant(tree, '/a', 'new');
    });
    expect(found).toEqual(['added /a', 'renamed /c /a']);
  });

  it('tells a directory that was moved as one, and what was moved out of it', () => {
    const found = changed((tree) => {
      move(tree, '/dir/two', '/two');
      move(tree, '/dir', '/moved');
    });
    expect(found).toEqual(['renamed /moved /dir', 'renamed /two /dir/two']);
  });

  it('tells two directories that have changed places', () => {
    const found = changed((tree) => {
      move(tree, '/dir', '/tmp');
      move(tree, '/other', '/dir');
      move(tree, '/tmp', '/other');
    });
    expect(found).toEqual(['renamed /dir /other', 'renamed /other /dir']);
  });

  it('shares no later byte with the copy', () => {
    const tree = fileTree();
    plant(tree, '/log', 'one');
    const copy = copyTree(tree);
    for (const each of [tree, copy]) {
      const { node } = each.get(ROOT, '/log');
      if (node.type === 'file') each.append(node, Buffer.from(each === tree ? ' two' : ' 2nd'), '/log');
    }
    expect(treeChanges(copy, tree)).toMatchObject([
      { path: '/log', content: true, before: { size: 7 }, after: { size: 7 } },
    ]);
  });
});
