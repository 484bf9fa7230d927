import { describe, expect, it } from 'vitest';
import { gather, inPieces } from '../../../../../test/conformance/box.ts';
import { tarNames, tarOf } from '../../../../../test/conformance/tar-entry.ts';
import { readFrom, tarFrom } from './archive-files.ts';

const archive = tarOf([
  { name: 'home', type: '5' },
  { name: 'home/user', type: '5' },
  { name: 'home/user/first', content: 'content' },
  { name: 'home/user/dir', type: '5' },
  { name: 'home/user/dir/second', type: '1', link: 'home/user/first' },
  { name: 'home/user/dir/third', type: '1', link: 'home/user/first' },
  { name: 'home/user/way', type: '2', link: '/etc/passwd' },
  { name: 'home/user/loop', type: '1', link: 'home/user/loop' },
]);
const open = () => inPieces(archive, 100);
const read = async (path: string) => (await gather(readFrom(open, path))).toString();

describe('readFrom', () => {
  it('reads a file by any of its names, and what a symlink leads to', async () => {
    expect(await read('/home/user/first')).toBe('content');
    expect(await read('/home//user/./dir/third')).toBe('content');
    expect(await read('/home/user/way')).toBe('/etc/passwd');
  });

  it.each([
    ['/', 'failed_precondition'],
    ['/home', 'failed_precondition'],
    ['/home/user/way/passwd', 'not_found'],
    ['/home/user/missing', 'not_found'],
    ['/home/user/loop', 'not_found'],
    ['/home/../etc/passwd', 'invalid_argument'],
  ])('%s is %s', async (path, code) => {
    await expect(read(path)).rejects.toMatchObject({ code });
  });
});

describe('tarFrom', () => {
  it('has the paths that were named and all below them', async () => {
    const tar = await gather(tarFrom(open, ['/home/user/dir', '/home/user/way']));
    expect(tarNames(tar)).toEqual([
      'home/user/dir/second',
      'home/user/dir',
      'home/user/dir/third',
      'home/user/way',
    ]);
    // A file whose first name was not asked for has its content under the next.
    const among = () => inPieces(tar, 100);
    for (const name of ['second', 'third'])
      expect((await gather(readFrom(among, `/home/user/dir/${name}`))).toString()).toBe('content');
    expect(tarNames(await gather(tarFrom(open, ['/'])))).toHaveLength(8);
  });

  it('rejects what is not there, and no paths at all', async () => {
    await expect(gather(tarFrom(open, ['/home/none']))).rejects.toMatchObject({ code: 'not_found' });
    await expect(gather(tarFrom(open, []))).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
