import { CayError, type ErrorCode, newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { execFileSync } from 'node:child_process';
import {
  chownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { guestBinary } from '../../guest/guest-binary.ts';
import { readArchive, type ReadArchiveOptions } from './read-archive.ts';
import { readTreeFile } from './read-tree-file.ts';
import { tarPaths } from './tar-paths.ts';
import { writeArchive, type WriteArchiveOptions } from './write-archive.ts';

const root = process.getuid?.() === 0;
if (!root) console.log('skipped: archives of trees need root');

describe.runIf(root)('archives', () => {
  const ids = { hostId: 500_000, size: 65_536 };
  const elsewhere = { hostId: 700_000, size: 65_536 };
  const program = guestBinary();
  let dir: string;
  let tree: string;
  let image: string;
  const manifest = {
    snapshot: newId('snap'),
    sandbox: newId('sbx'),
    spec: SandboxSpecSchema.parse({ env: { A: 'b' } }),
    runtime: 'runsc',
  };

  beforeAll(() => {
    dir = mkdtempSync(join(tmpdir(), 'cay-archives-'));
    tree = join(dir, 'tree');
    image = join(dir, 'image');
    mkdirSync(join(tree, 'sub', 'empty'), { recursive: true });
    mkdirSync(image);
    const own = (path: string, uid = 0) => chownSync(path, ids.hostId + uid, ids.hostId + uid);
    for (const path of ['', 'sub', 'sub/empty']) own(join(tree, path));
    writeFileSync(join(tree, 'sub', 'file'), 'content', { mode: 0o640 });
    own(join(tree, 'sub', 'file'), 1000);
    utimesSync(join(tree, 'sub', 'file'), 1_000_000_000.123, 1_000_000_000.123);
    linkSync(join(tree, 'sub', 'file'), join(tree, 'same'));
    symlinkSync('/etc/passwd', join(tree, 'link'));
    symlinkSync('sub', join(tree, 'way'));
    writeFileSync(join(tree, 'holes'), 'x');
    truncateSync(join(tree, 'holes'), 5_000_000_000);
    own(join(tree, 'holes'));
    writeFileSync(join(image, 'checkpoint.img'), Buffer.alloc(300_000, 'memory'));
    writeFileSync(join(image, 'pages.img'), '');
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  const write = (options: Partial<WriteArchiveOptions> = {}) =>
    writeArchive({
      manifest,
      tree: { path: tree, ids },
      image: { dir: image, compatibility: 'this machine' },
      guestBinary: program,
      ...options,
    });

  let next = 0;
  async function read(source: AsyncIterable<Uint8Array>, options: Partial<ReadArchiveOptions> = {}) {
    const place = join(dir, `read-${next++}`);
    const imageDir = join(place, 'image');
    mkdirSync(join(place, 'tree'), { recursive: true });
    mkdirSync(imageDir);
    const target = { path: join(place, 'tree'), ids: elsewhere };
    const read = await readArchive(source, {
      tree: target,
      imageDir,
      maxBytes: 1e9,
      guestBinary: program,
      ...options,
    });
    return { ...read, place };
  }

  it('carry the signature of their writer, over every byte before it', async () => {
    const seen: string[] = [];
    const sign = (digest: string) => {
      seen.push(digest);
      return 'A-signature_42';
    };
    const archive = await collect(write({ sign }));
    expect((await read(inPieces(archive))).digest).toEqual({ sha256: seen[0], signature: 'A-signature_42' });
    expect((await read(inPieces(await collect(write({}))))).digest.signature).toBeUndefined();
    // A signature that is written in any other way than the one is refused.
    const text = archive.toString('latin1');
    const odd = Buffer.from(
      text.replace('"signature":"A-signature_42"', '"signature":"A-signature 42"'),
      'latin1',
    );
    await expect(read(inPieces(odd))).rejects.toMatchObject({ code: 'invalid_argument' });
  });

  it('are unpacked no further than the caller admits', async () => {
    const archive = await collect(write({}));
    let admitted = 0;
    const admit = (bytes: number) => {
      if ((admitted += bytes) > 100_000) throw new CayError('resource_exhausted', 'enough');
    };
    await expect(read(inPieces(archive), { admit })).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(admitted).toBeLessThan(500_000);
  });

  async function* inPieces(bytes: Uint8Array, size = 10_000): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }

  function looks(path: string, shift: number): string[] {
    const names = ['.', ...(readdirSync(path, { recursive: true }) as string[])].sort();
    return names.map((name) => {
      const stat = lstatSync(join(path, name), { bigint: true });
      const what = stat.isSymbolicLink()
        ? readlinkSync(join(path, name))
        : stat.isFile() && stat.size < 1e6
          ? readFileSync(join(path, name), 'utf8')
          : '';
      const owner = stat.isSymbolicLink() && shift === ids.hostId ? '' : Number(stat.uid) - shift;
      return `${name} ${stat.mode.toString(8)} ${stat.isSymbolicLink() ? '' : owner} ${stat.mtimeNs} ${stat.isDirectory() ? '' : stat.size} ${stat.isDirectory() ? '' : stat.nlink} ${what}`;
    });
  }

  async function collect(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
    return Buffer.concat(await Array.fromAsync(source));
  }

  it.each(['zstd', 'none'] as const)(
    'survive the way to other ids with compression %s',
    async (compression) => {
      const archive = await collect(write({ compression }));
      const { manifest: found, place } = await read(inPieces(archive));
      expect(found).toMatchObject({ ...manifest, compression, memory: { compatibility: 'this machine' } });
      expect(looks(join(place, 'tree'), elsewhere.hostId)).toEqual(looks(tree, ids.hostId));
      expect(lstatSync(join(place, 'tree', 'holes')).blocks).toBeLessThan(1000);
      expect(readFileSync(join(place, 'image', 'checkpoint.img'))).toEqual(
        readFileSync(join(image, 'checkpoint.img')),
      );
      expect(readdirSync(join(place, 'image')).sort()).toEqual(['checkpoint.img', 'pages.img']);
      if (compression === 'none') expect(archive.length).toBeLessThan(1_000_000);
    },
  );

  it('are tars that the tools of every machine open', async () => {
    const archive = await collect(write());
    const names = execFileSync('tar', ['-t'], { input: archive, encoding: 'utf8' }).trim().split('\n');
    expect(names).toEqual([
      'manifest.json',
      'tree/000000',
      'memory/checkpoint.img/000000',
      'memory/pages.img/000000',
      'sha256.json',
    ]);
  });

  it('are refused whole if a single bit differs, wherever it is', async () => {
    const archive = await collect(write());
    const refuse = async (at: number) => {
      const bytes = Buffer.from(archive);
      bytes[at >> 3]! ^= 1 << (at & 7);
      await rejects(read(inPieces(bytes)), 'invalid_argument');
    };
    await fc.assert(fc.asyncProperty(fc.integer({ min: 0, max: archive.length * 8 - 1 }), refuse), {
      numRuns: 150,
    });
  }, 60_000);

  it('are refused if they are cut off, go on, or come in another order', async () => {
    const archive = await collect(write());
    const cut = (length: number) => rejects(read(inPieces(archive.subarray(0, length))), 'invalid_argument');
    await fc.assert(fc.asyncProperty(fc.integer({ min: 0, max: archive.length - 1 }), cut), { numRuns: 60 });
    await cut(archive.length - 1);
    await rejects(read(inPieces(Buffer.concat([archive, Buffer.alloc(1)]))), 'invalid_argument');
    const blocks = archive.length / 512;
    const swap = async (a: number, b: number) => {
      const bytes = Buffer.from(archive);
      archive.copy(bytes, a * 512, b * 512, b * 512 + 512);
      archive.copy(bytes, b * 512, a * 512, a * 512 + 512);
      if (!bytes.equals(archive)) await rejects(read(inPieces(bytes)), 'invalid_argument');
    };
    const block = fc.integer({ min: 0, max: blocks - 1 });
    await fc.assert(fc.asyncProperty(block, block, swap), { numRuns: 60 });
  }, 60_000);

  it('of random bytes are refused', async () => {
    const refuse = (bytes: Uint8Array) => rejects(read(inPieces(bytes, 100)), 'invalid_argument');
    await fc.assert(fc.asyncProperty(fc.uint8Array({ maxLength: 3000 }), refuse), { numRuns: 50 });
  });

  it('that unpack to more than is allowed are refused', async () => {
    await rejects(read(write(), { maxBytes: 100_000 }), 'resource_exhausted');
  });

  it('end their program when the reader stops', async () => {
    writeFileSync(join(tree, 'large'), Buffer.alloc(50_000_000, 'x'));
    try {
      for await (const chunk of write({ compression: 'none' })) if (chunk.length > 1000) break;
      const controller = new AbortController();
      async function* stalling() {
        for await (const chunk of write({ compression: 'none' })) {
          yield chunk;
          if (chunk.length > 100_000) break;
        }
        controller.abort(new CayError('cancelled', 'Enough'));
        await new Promise(() => {});
      }
      await rejects(read(stalling(), { signal: controller.signal }), 'cancelled');
    } finally {
      rmSync(join(tree, 'large'));
    }
    const running = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => readProcess(pid));
    expect(running.filter((line) => line.includes(dir))).toEqual([]);
  });

  it('of chosen paths hold these and refuse missing ones', async () => {
    const tar = (paths: string[]) => collect(tarPaths({ path: tree, ids, paths, guestBinary: program }));
    expect(execFileSync('tar', ['-t'], { input: await tar(['/sub', 'link']), encoding: 'utf8' })).toBe(
      'sub/\nsub/empty/\nsub/file\nlink\n',
    );
    await rejects(tar(['/none']), 'not_found');
    await rejects(tar(['/sub/../..']), 'invalid_argument');
    await rejects(tar(['/way/file']), 'invalid_argument');
    await rejects(tar([]), 'invalid_argument');
  });

  it('and single files of a tree are read without following any symlink', async () => {
    const text = async (path: string) => (await collect(readTreeFile(tree, path))).toString();
    expect(await text('/sub/file')).toBe('content');
    expect(await text('link')).toBe('/etc/passwd');
    await rejects(text('/way/file'), 'not_found');
    await rejects(text('/link/x'), 'not_found');
    await rejects(text('/none'), 'not_found');
    await rejects(text('/sub/file/x'), 'not_found');
    await rejects(text('/sub'), 'failed_precondition');
    await rejects(text('/'), 'failed_precondition');
    await rejects(text('/sub/../../x'), 'invalid_argument');
    await rejects(text('a\0b'), 'invalid_argument');
  });
});

function readProcess(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

async function rejects(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(CayError);
  expect((error as CayError).code, (error as CayError).message).toBe(code);
}
