import {
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pack } from './pack.ts';
import { BLOCK, decodeHeader, encodeHeader, paddingOf, type Entry } from '../../../lib/tar/header.ts';
import { staysInside, unpack } from './unpack.ts';

let scratch: string;
let dir: string;
beforeEach(async () => {
  scratch = await mkdtemp('/tmp/cay-archive-');
  dir = join(scratch, 'target');
  await mkdir(dir);
});
afterEach(() => rm(scratch, { recursive: true, force: true }));

type Made = Partial<Entry> & {
  name: string;
  type: 'file' | 'directory' | 'symlink' | 'hardlink';
  content?: string;
};

function archive(...entries: Made[]): Buffer {
  const parts = entries.flatMap(({ content = '', ...entry }) => {
    const size = entry.type === 'file' ? Buffer.byteLength(content) : 0;
    return [
      encodeHeader({ mode: 0o644, uid: 0, gid: 0, modifiedAtMs: 0, target: '', ...entry, sizeBytes: size }),
      Buffer.from(entry.type === 'file' ? content : ''),
      Buffer.alloc(paddingOf(size)),
    ];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

async function* inChunks(data: Buffer, size = 700): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
}

/** An entry whose name the encoder would not write, with a right checksum. */
function hostile(name: string, letter: string, target = ''): Buffer {
  const head = encodeHeader({
    name: 'x',
    type: 'file',
    sizeBytes: 0,
    mode: 0o644,
    uid: 0,
    gid: 0,
    modifiedAtMs: 0,
    target: '',
  });
  head.fill(0, 0, 100).write(name, 0);
  head.write(letter, 156);
  head.fill(0, 157, 257).write(target, 157);
  head.fill(' ', 148, 156);
  const sum = head.reduce((total, byte) => total + byte, 0);
  head.write(`${sum.toString(8).padStart(6, '0')}\u0000 `, 148);
  return Buffer.concat([head, Buffer.alloc(2 * BLOCK)]);
}

describe('pack and unpack', () => {
  it('bring a tree back as it was', async () => {
    const from = join(scratch, 'from');
    await mkdir(join(from, 'deep/er'), { recursive: true });
    await writeFile(join(from, 'deep/er/ümläut name'), 'x'.repeat(100_000), { mode: 0o640 });
    await writeFile(join(from, `${'long'.repeat(40)}`), '', { mode: 0o755 });
    await symlink('deep/er', join(from, 'link'));
    const { entries, leftOut, bytes } = await unpack(dir, pack(from));
    expect({ entries, leftOut, bytes }).toEqual({ entries: 5, leftOut: [], bytes: 100_000 });
    expect(await readFile(join(dir, 'deep/er/ümläut name'), 'utf8')).toHaveLength(100_000);
    expect((await stat(join(dir, 'deep/er/ümläut name'))).mode & 0o777).toBe(0o640);
    expect((await stat(join(dir, 'long'.repeat(40)))).mode & 0o777).toBe(0o755);
    expect(await readlink(join(dir, 'link'))).toBe('deep/er');
  });

  it('keep any header through encoding and decoding', () => {
    fc.assert(
      fc.property(
        fc.record({
          name: fc
            .string({ unit: 'grapheme', minLength: 1, maxLength: 300 })
            .filter((name) => !/[\0/]/.test(name)),
          type: fc.constantFrom('file', 'directory', 'symlink'),
          sizeBytes: fc.nat(8 ** 11 - 1),
          mode: fc.nat(0o777),
          target: fc.string({ maxLength: 200 }).filter((target) => !target.includes('\0')),
        }),
        (made) => {
          const entry = { ...made, uid: 7, gid: 8, modifiedAtMs: 5000 } as Entry & { type: 'file' };
          const encoded = encodeHeader(entry);
          // The last block is the entry's own; what comes before are its pax records, which `unpack` reads.
          const decoded = decodeHeader(encoded.subarray(-BLOCK), { path: made.name, linkpath: made.target });
          expect(decoded).toMatchObject(entry);
        },
      ),
    );
  });
});

describe('unpack() of a hostile archive', () => {
  it.each(['/etc/evil', '../evil', 'a/../../evil', 'a/b/../../../evil'])(
    'refuses the name %s and writes nothing outside',
    async (name) => {
      await expect(unpack(dir, inChunks(hostile(name, '0')))).rejects.toMatchObject({
        code: 'permission_denied',
      });
      expect(await readdir(scratch)).toEqual(['target']);
    },
  );

  it('does not write through a symlink of the archive', async () => {
    const data = archive(
      { name: 'inside', type: 'directory', mode: 0o755 },
      { name: 'door', type: 'symlink', target: 'inside' },
      { name: 'door/file', type: 'file', content: 'x' },
    );
    await expect(unpack(dir, inChunks(data))).rejects.toMatchObject({ code: 'permission_denied' });
    expect(await readdir(join(dir, 'inside'))).toEqual([]);
  });

  it('does not write through a symlink that was there before', async () => {
    await mkdir(join(scratch, 'elsewhere'));
    await symlink(join(scratch, 'elsewhere'), join(dir, 'door'));
    await expect(
      unpack(dir, inChunks(archive({ name: 'door/file', type: 'file', content: 'x' }))),
    ).rejects.toMatchObject({
      code: 'permission_denied',
    });
    expect(await readdir(join(scratch, 'elsewhere'))).toEqual([]);
  });

  it('replaces a symlink that has the name of a file, and leaves what it led to alone', async () => {
    await writeFile(join(scratch, 'precious'), 'keep');
    await symlink(join(scratch, 'precious'), join(dir, 'file'));
    await unpack(dir, inChunks(archive({ name: 'file', type: 'file', content: 'new' })));
    expect(await readFile(join(scratch, 'precious'), 'utf8')).toBe('keep');
    expect((await lstat(join(dir, 'file'))).isFile()).toBe(true);
  });

  it.each(['/etc/passwd', '../outside', 'a/../../outside'])(
    'leaves out a symlink to %s and says so',
    async (target) => {
      const { leftOut } = await unpack(
        dir,
        inChunks(
          archive({ name: 'link', type: 'symlink', target }, { name: 'file', type: 'file', content: 'x' }),
        ),
      );
      expect(leftOut).toMatchObject([{ name: 'link' }]);
      expect(await readdir(dir)).toEqual(['file']);
    },
  );

  it('leaves out a climb through a link to less deep', async () => {
    const data = archive(
      { name: 'a/b', type: 'directory', mode: 0o755 },
      { name: 'a/b/up', type: 'symlink', target: '../..' },
      { name: 'escape', type: 'symlink', target: 'a/b/up/../..' },
    );
    expect((await unpack(dir, inChunks(data))).leftOut).toMatchObject([{ name: 'escape' }]);
  });

  it('refuses a hard link to a file outside', async () => {
    await writeFile(join(scratch, 'secret'), 'secret');
    await expect(unpack(dir, inChunks(hostile('link', '1', '../secret')))).rejects.toMatchObject({
      code: 'permission_denied',
    });
    await expect(unpack(dir, inChunks(hostile('link', '1', join(scratch, 'secret'))))).rejects.toMatchObject({
      code: 'permission_denied',
    });
    expect(await readdir(dir)).toEqual([]);
  });

  it('does not make a hard link of a symlink', async () => {
    await symlink('/etc/passwd', join(dir, 'sym'));
    expect((await unpack(dir, inChunks(hostile('link', '1', 'sym')))).leftOut).toMatchObject([
      { name: 'link' },
    ]);
  });

  it('leaves out devices and pipes', async () => {
    for (const letter of ['3', '4', '6'])
      expect((await unpack(dir, inChunks(hostile('device', letter)))).leftOut).toHaveLength(1);
    expect(await readdir(dir)).toEqual([]);
  });

  it('drops setuid and setgid', async () => {
    await unpack(dir, inChunks(archive({ name: 'tool', type: 'file', content: 'x', mode: 0o6755 })));
    expect((await stat(join(dir, 'tool'))).mode & 0o7777).toBe(0o755);
  });

  it('rejects archives that are cut off or broken', async () => {
    const data = archive({ name: 'file', type: 'file', content: 'x'.repeat(3000) });
    await expect(unpack(dir, inChunks(data.subarray(0, 1500)))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    await expect(unpack(dir, inChunks(Buffer.alloc(BLOCK, 'z')))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
  });

  it('refuses what is compressed', async () => {
    const data = gzipSync(archive({ name: 'file', type: 'file', content: 'x'.repeat(3000) }));
    await expect(unpack(dir, inChunks(Buffer.concat([data, Buffer.alloc(BLOCK)])))).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining('it is compressed') as string,
    });
    expect(await readdir(dir)).toEqual([]);
  });

  it('leaves no file that is cut off', async () => {
    const data = archive(
      { name: 'whole', type: 'file', content: 'x' },
      { name: 'half', type: 'file', content: 'y'.repeat(5000) },
    );
    await expect(unpack(dir, inChunks(data.subarray(0, 4000)))).rejects.toThrow('Cannot unpack');
    expect(await readdir(dir)).toEqual(['whole']);
  });

  it('does not put a file in the place of a directory, or a directory in the place of a file', async () => {
    await mkdir(join(dir, 'a'));
    await expect(unpack(dir, inChunks(archive({ name: 'a', type: 'file', content: 'x' })))).rejects.toThrow(
      '"a" is there and a directory',
    );
    await writeFile(join(dir, 'b'), '');
    await expect(
      unpack(dir, inChunks(archive({ name: 'b', type: 'directory', mode: 0o755 }))),
    ).rejects.toThrow('"b" is there and not a directory');
    await symlink(scratch, join(dir, 'c'));
    await expect(
      unpack(dir, inChunks(archive({ name: 'c', type: 'directory', mode: 0o755 }))),
    ).rejects.toThrow('"c" is there and not a directory');
  });

  it('makes hard links inside, and none through a symlink', async () => {
    const data = archive(
      { name: 'd', type: 'directory', mode: 0o755 },
      { name: 'd/file', type: 'file', content: 'x' },
      { name: 'd/same', type: 'hardlink', target: 'd/file' },
    );
    await unpack(dir, inChunks(data));
    expect((await stat(join(dir, 'd/same'))).ino).toBe((await stat(join(dir, 'd/file'))).ino);
    await writeFile(join(scratch, 'secret'), '');
    await symlink(scratch, join(dir, 'door'));
    await expect(unpack(dir, inChunks(hostile('link', '1', 'door/secret')))).rejects.toMatchObject({
      code: 'permission_denied',
    });
  });

  it('fills a directory that may not be written, and gives it its mode and time', async () => {
    const data = archive(
      { name: 'locked', type: 'directory', mode: 0o555, modifiedAtMs: 1_000_000_000_000 },
      { name: 'locked/file', type: 'file', content: 'x', mode: 0o444 },
    );
    await unpack(dir, inChunks(data));
    const { mode, mtimeMs } = await stat(join(dir, 'locked'));
    expect({ mode: mode & 0o777, mtimeMs }).toEqual({ mode: 0o555, mtimeMs: 1_000_000_000_000 });
    expect(await readFile(join(dir, 'locked/file'), 'utf8')).toBe('x');
  });

  it('refuses a climbing name of an extended header', async () => {
    const long = `${'../'.repeat(60)}evil`;
    await expect(
      unpack(dir, inChunks(archive({ name: long, type: 'file', content: 'x' }))),
    ).rejects.toMatchObject({
      code: 'permission_denied',
    });
    expect(await readdir(scratch)).toEqual(['target']);
  });

  it('never writes beside the directory, whatever the bytes are', async () => {
    const base = archive(
      { name: 'a', type: 'directory', mode: 0o755 },
      { name: 'a/f', type: 'file', content: 'x' },
      { name: 'a/l', type: 'symlink', target: 'f' },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(base.length - 1), fc.nat(255)), { maxLength: 6 }),
        async (flips) => {
          const data = Buffer.from(base);
          for (const [at, value] of flips) data[at] = value;
          await unpack(dir, inChunks(data)).catch(() => {});
          expect(await readdir(scratch)).toEqual(['target']);
          await rm(dir, { recursive: true });
          await mkdir(dir);
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe('staysInside()', () => {
  it('is false for every target that climbs beyond the top or after a name', () => {
    expect(staysInside(['a', 'b', 'link'], '../../x')).toBe(true);
    expect(staysInside(['a', 'b', 'link'], '../../../x')).toBe(false);
    expect(staysInside(['link'], 'x/../y')).toBe(false);
    expect(staysInside(['link'], './x')).toBe(true);
    expect(staysInside(['link'], '')).toBe(false);
  });
});
