import { describe, expect, it } from 'vitest';
import { gather, inPieces } from '../../../../../test/conformance/box.ts';
import { tarNames, tarOf, type TarEntry } from '../../../../../test/conformance/tar-entry.ts';
import { bounded, onlyIn, withParents } from './tree-entries.ts';

const tree = (...entries: TarEntry[]) => inPieces(tarOf(entries), 100);

describe('onlyIn', () => {
  const whole = () =>
    tree(
      { name: 'etc', type: '5' },
      { name: 'etc/passwd', content: 'x' },
      { name: 'home', type: '5' },
      { name: 'home/user', type: '5' },
      { name: 'home/user/file', content: 'x' },
      { name: 'home/username', content: 'x' },
      { name: 'tmp/same', type: '1', link: 'home/user/file' },
    );

  it('keeps what lies in the directories, and what they lie in', async () => {
    const own = ['/home/user', '/tmp'];
    expect(tarNames(await gather(onlyIn(whole(), own)))).toEqual(['home/user', 'home/user/file', 'tmp/same']);
    expect(tarNames(await gather(onlyIn(whole(), own, { parents: true })))[0]).toBe('home');
  });

  it('leaves out what something else is mounted over, and refuses another name of a file there', async () => {
    const except = ['/home/user/file'];
    expect(tarNames(await gather(onlyIn(whole(), ['/home'], { except })))).toEqual([
      'home',
      'home/user',
      'home/username',
    ]);
    await expect(gather(onlyIn(whole(), ['/home', '/tmp'], { except }))).rejects.toMatchObject({
      code: 'unsupported',
    });
  });

  it('refuses another name of a file that does not', async () => {
    await expect(gather(onlyIn(whole(), ['/tmp']))).rejects.toMatchObject({ code: 'unsupported' });
  });
});

it('withParents puts before a tree what its directories lie in', async () => {
  const own = ['/home/user', '/var/tmp', '/work', '/work/deep'];
  const names = tarNames(await gather(withParents(tree({ name: 'home/user', type: '5' }), own)));
  expect(names).toEqual(['home', 'var', 'home/user']);
});

it('bounded ends a tree that has more bytes', async () => {
  await expect(gather(bounded(tree({ name: 'a', content: 'x' }), 1000, 'keep it'))).rejects.toMatchObject({
    code: 'resource_exhausted',
  });
});
