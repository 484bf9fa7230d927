import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, open, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { openBtrfs } from './btrfs.ts';
import { metadataChunks } from './reserve-metadata.ts';

const exec = promisify(execFile);
const MIB = 1024 ** 2;

const DUMP = `btrfs-progs v6.14
chunk tree
leaf 173031424 items 5 free space 15740 generation 29 owner CHUNK_TREE
	item 0 key (DEV_ITEMS DEV_ITEM 1) itemoff 16185 itemsize 98
		devid 1 total_bytes 1363148800 bytes_used 201326592
		io_align 4096 io_width 4096 sector_size 4096 type 0
	item 1 key (FIRST_CHUNK_TREE CHUNK_ITEM 5242880) itemoff 16105 itemsize 80
		length 8388608 owner 2 stripe_len 65536 type METADATA|single
		num_stripes 1 sub_stripes 1
			stripe 0 devid 1 offset 5242880
	item 2 key (FIRST_CHUNK_TREE CHUNK_ITEM 13631488) itemoff 16025 itemsize 80
		length 8388608 owner 2 stripe_len 65536 type DATA|single
		num_stripes 1 sub_stripes 1
			stripe 0 devid 1 offset 13631488
	item 4 key (FIRST_CHUNK_TREE CHUNK_ITEM 173015040) itemoff 15865 itemsize 80
		length 33554432 owner 2 stripe_len 65536 type SYSTEM|DUP
		num_stripes 2 sub_stripes 1
			stripe 0 devid 1 offset 173015040
			stripe 1 devid 1 offset 273015040
`;

describe('metadataChunks()', () => {
  it('finds every copy of what is not only data', () => {
    expect(metadataChunks(DUMP)).toEqual([
      { offset: 5_242_880, length: 8_388_608 },
      { offset: 173_015_040, length: 33_554_432 },
      { offset: 273_015_040, length: 33_554_432 },
    ]);
    expect(metadataChunks('')).toEqual([]);
    expect(metadataChunks('ERROR: cannot read chunk root')).toEqual([]);
  });
});

const reason = await (async () => {
  if (process.getuid?.() !== 0) return 'they need root';
  return exec('mkfs.ext4', ['-V']).then(
    () => undefined,
    () => 'there is no mkfs.ext4',
  );
})();
if (reason) console.warn(`Skipping the tests of a pool on a full disk: ${reason}`);

describe.skipIf(reason !== undefined)('a pool on a disk that is full', () => {
  it('stays writable, copies and removes trees, and goes on when there is room', async () => {
    const base = await mkdtemp(join(tmpdir(), 'cay-full-pool-'));
    const disk = join(base, 'disk');
    await mkdir(disk);
    await exec('truncate', ['-s', String(1200 * MIB), `${disk}.ext4`]);
    await exec('mkfs.ext4', ['-q', '-m', '0', `${disk}.ext4`]);
    await exec('mount', ['-o', 'loop', `${disk}.ext4`, disk]);
    try {
      const trees = await openBtrfs({ dir: join(disk, 'trees'), poolBytes: 1000 * MIB, tendEveryMs: 0 });
      try {
        await writeFile(join(await trees.prepare('a'), 'before'), 'before');
        await trees.tend();
        await fill(disk);
        await writeFile(join(await trees.path('a'), 'small'), 'fits into the metadata');
        await expect(write(join(await trees.path('a'), 'large'), 4 * MIB)).rejects.toThrow(/ENOSPC|EIO/);
        for (const name of ['one', 'two', 'three']) await trees.commit(name, 'a');
        await trees.prepare('b', { parent: 'three' });
        await trees.remove('one');
        await trees.tend();
        await exec('btrfs', ['filesystem', 'sync', join(disk, 'trees', 'pool')]);
        expect(await readFile(join(await trees.path('b'), 'small'), 'utf8')).toBe('fits into the metadata');

        await rm(join(disk, 'ballast'));
        await write(join(await trees.path('b'), 'large'), 4 * MIB);
        expect((await trees.list()).map(({ name }) => name).toSorted()).toEqual(['a', 'b', 'three', 'two']);
        const { stdout } = await exec('btrfs', ['scrub', 'start', '-B', join(disk, 'trees', 'pool')]);
        expect(stdout).toContain('no errors found');
      } finally {
        await trees.destroy();
      }
    } finally {
      await exec('umount', [disk]);
      await rm(base, { recursive: true, force: true });
    }
  }, 120_000);
});

/** Leaves no byte. */
async function fill(disk: string): Promise<void> {
  const { bsize, bfree } = await statfs(disk);
  await exec('fallocate', ['-l', String(bsize * bfree), join(disk, 'ballast')]).catch(() => {});
  await expect(write(join(disk, 'ballast'), Number.POSITIVE_INFINITY, 'a')).rejects.toThrow(/ENOSPC/);
}

async function write(path: string, bytes: number, flags = 'w'): Promise<void> {
  const file = await open(path, flags);
  try {
    const chunk = Buffer.alloc(64 * 1024, 'content');
    for (let done = 0; done < bytes; done += chunk.length) await file.write(chunk);
    await file.sync();
  } finally {
    await file.close();
  }
}
