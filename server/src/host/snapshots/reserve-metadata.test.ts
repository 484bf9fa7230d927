import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, open, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { openBtrfs } from './btrfs.ts';
import { nextChunk, parseChunks } from './reserve-metadata.ts';

const exec = promisify(execFile);
const MIB = 1024 ** 2;

const TABLE = `Devid PNumber      Type/profile    PStart    Length       PEnd LNumber    LStart Usage%
----- ------- ----------------- --------- --------- ---------- ------- --------- ------
    1       1     System/single   1048576   4194304    5242880       1   1048576   0.39
    1       2   Metadata/single   5242880   8388608   13631488       2   5242880   1.56
    1       3       Data/single  13631488   8388608   22020096       3  13631488   0.00
    1       5  Data+Metadata/DUP 700000000 33554432  733554432       4 733554432   0.00
`;

describe('parseChunks()', () => {
  it('finds every chunk, and tells those that are only data', () => {
    expect(parseChunks(TABLE)).toEqual([
      { data: false, offset: 1_048_576, length: 4_194_304 },
      { data: false, offset: 5_242_880, length: 8_388_608 },
      { data: true, offset: 13_631_488, length: 8_388_608 },
      { data: false, offset: 700_000_000, length: 33_554_432 },
    ]);
    expect(parseChunks('')).toEqual([]);
    expect(parseChunks('ERROR: not a btrfs filesystem')).toEqual([]);
  });
});

describe('nextChunk()', () => {
  it('is the first gap that is large enough', () => {
    expect(nextChunk(parseChunks(TABLE), 4096 * MIB)).toEqual([{ offset: 22_020_096, length: 256 * MIB }]);
    expect(nextChunk(parseChunks(TABLE), 100_000 * MIB)).toEqual([
      { offset: 733_554_432, length: 1024 * MIB },
    ]);
    expect(nextChunk([], 4096 * MIB)).toEqual([]);
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

        // Such files live in the metadata alone; so many of them take another chunk of it.
        for (let i = 0; i < 8000; i++)
          await writeFile(join(await trees.path('b'), `file-${i}`), Buffer.alloc(1900, 'x'));
        await exec('btrfs', ['filesystem', 'sync', join(disk, 'trees', 'pool')]);
        await writeFile(join(await trees.path('b'), 'after'), 'still writable');

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
