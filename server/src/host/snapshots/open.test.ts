import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openBtrfs } from './btrfs.ts';
import { openSnapshotter } from './open.ts';
import { openOverlay } from './overlay.ts';

const POOL = { poolBytes: 512 * 1024 ** 2 };

const root = process.getuid?.() === 0;
if (!root) console.warn('Skipping the tests of opening a snapshotter: they need root');

describe.skipIf(!root)('openSnapshotter', () => {
  let dir: string;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'cay-open-'));
  });
  afterEach(async () => {
    await rm(dir, { recursive: true, force: true });
  });

  it('takes the driver that is asked for', async () => {
    const trees = await openSnapshotter({ dir, name: 'overlay' });
    expect(trees.name).toBe('overlay');
    await (await openOverlay({ dir })).destroy();
  });

  it('says which drivers there are when the name is unknown', async () => {
    await expect(openSnapshotter({ dir, name: 'floppy' })).rejects.toMatchObject({
      code: 'unsupported',
      hint: expect.stringContaining('overlay'),
    });
  });

  it('chooses one that works, and chooses it again', async () => {
    const trees = await openSnapshotter({ dir, ...POOL });
    await trees.prepare('a');
    await trees.close();
    const again = await openSnapshotter({ dir, ...POOL });
    expect(again.name).toBe(trees.name);
    expect(await again.list()).toEqual([{ name: 'a', kind: 'active' }]);
    await again.close();
    await (trees.name === 'btrfs' ? await openBtrfs({ dir }) : await openOverlay({ dir })).destroy();
  });

  it('stays with overlay where there are trees of it', async () => {
    const before = await openOverlay({ dir });
    await before.prepare('a');
    await before.close();
    const trees = await openSnapshotter({ dir, ...POOL });
    expect(trees.name).toBe('overlay');
    expect(await trees.list()).toHaveLength(1);
    await (await openOverlay({ dir })).destroy();
  });

  it('falls back to overlay where no pool can be made, and leaves no pool', async () => {
    const trees = await openSnapshotter({ dir, poolBytes: 2 ** 50 });
    expect(trees.name).toBe('overlay');
    await (await openOverlay({ dir })).destroy();
    await mkdir(dir, { recursive: true });
  });

  it('says why the driver that is asked for does not work', async () => {
    await writeFile(join(dir, 'file'), '');
    await expect(openSnapshotter({ dir: join(dir, 'file', 'trees'), name: 'overlay' })).rejects.toMatchObject(
      {
        code: 'failed_precondition',
        message: expect.stringContaining('overlay'),
      },
    );
  });
});
