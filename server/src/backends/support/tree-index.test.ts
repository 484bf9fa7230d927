import { describe, expect, it } from 'vitest';
import { tarOf, type TarEntry } from '../../../../test/conformance/tar-entry.ts';
import { checkedTree } from './checked-tree.ts';
import { compareIndexes } from './compare-indexes.ts';
import { indexTree } from './tree-index.ts';

async function* inPieces(bytes: Buffer, length = 700) {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

const directory = (name: string): TarEntry => ({ name, type: '5', mode: 0o755 });
const index = (entries: TarEntry[]) => indexTree(inPieces(tarOf(entries)));

async function changes(before: TarEntry[], after: TarEntry[]): Promise<string[]> {
  return compareIndexes(await index(before), await index(after)).map(({ change, path, from }) =>
    [change, path, ...(from === undefined ? [] : [from])].join(' '),
  );
}

describe('the index of a tree', () => {
  it('tells what was added, removed and modified, and not what has new times alone', async () => {
    const before = [directory('a'), { name: 'a/same', content: 'x' }, { name: 'a/old', content: 'old' }];
    const after = [
      directory('a'),
      { name: 'a/same', content: 'x', mode: 0o600 },
      { name: 'a/new', content: 'new' },
    ];
    expect(await changes(before, after)).toEqual(['added /a/new', 'removed /a/old', 'modified /a/same']);
    expect(await changes(before, before)).toEqual([]);
  });

  it('takes the same content elsewhere for a rename, of files and of directories', async () => {
    const before = [directory('one'), { name: 'one/a', content: 'aaa' }, { name: 'one/b', content: 'bbb' }];
    const after = [
      directory('two'),
      { name: 'two/a', content: 'aaa' },
      { name: 'two/b', content: 'changed' },
    ];
    expect(await changes(before, after)).toEqual(['renamed /two /one', 'modified /two/b']);
    expect(await changes([{ name: 'x', content: 'same' }], [{ name: 'y', content: 'same' }])).toEqual([
      'renamed /y /x',
    ]);
    // Empty files are all alike.
    expect(await changes([{ name: 'x' }], [{ name: 'y' }])).toEqual(['removed /x', 'added /y']);
  });

  it('has a further name of a file as what the file is', async () => {
    const found = await index([
      { name: 'file', content: 'abc' },
      { name: 'twin', type: '1', link: 'file' },
    ]);
    expect(found.get('/twin')).toEqual(found.get('/file'));
  });
});

describe('a tree that is checked', () => {
  const check = async (entries: TarEntry[]) =>
    Buffer.concat(await Array.fromAsync(checkedTree(inPieces(tarOf(entries)))));

  it('comes out as it went in', async () => {
    const entries = [directory('a'), { name: 'a/file', content: 'x'.repeat(700) }];
    expect((await check(entries)).equals(tarOf(entries))).toBe(true);
  });

  it.each<[string, TarEntry[]]>([
    ['a name that leads out', [{ name: '../x' }]],
    ['a name below a link', [{ name: 'way', type: '2', link: '/etc' }, { name: 'way/x' }]],
    ['a name below a file', [{ name: 'file' }, { name: 'file/x' }]],
    ['a hard link to what is not in it', [{ name: 'x', type: '1', link: 'etc/passwd' }]],
    [
      'a hard link to a symlink',
      [
        { name: 'l', type: '2', link: '/x' },
        { name: 'x', type: '1', link: 'l' },
      ],
    ],
    ['a device', [{ name: 'mem', type: '3' }]],
    ['a whiteout', [directory('a'), { name: 'a/.wh.b' }]],
    ['a directory in the place of a file', [{ name: 'x' }, directory('x')]],
  ])('is refused for %s', async (_what, entries) => {
    await expect(check(entries)).rejects.toMatchObject({ code: 'invalid_argument' });
  });

  it('is refused when it is cut off', async () => {
    const bytes = tarOf([{ name: 'a', content: 'x'.repeat(2000) }]).subarray(0, 1500);
    const read = Array.fromAsync(checkedTree(inPieces(bytes)));
    await expect(read).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
