import { expect } from 'vitest';
import { all, gather, noise } from './box.ts';
import { rejects, type Suite } from './suite.ts';

const LONG_NAME = 'n'.repeat(255);
const ODD_NAMES = [
  'with space',
  'new\nline',
  'ünïcödé 世界 🎉',
  '-rf',
  '*',
  '$HOME',
  "quo'te",
  '"double"',
  'back\\slash',
  '...',
  LONG_NAME,
];

export function fileCases(suite: Suite): void {
  suite.share();

  suite.inBox('stat() tells type, size, mode, owner and time', [], async (box) => {
    const path = await box.write('file', 'hello');
    await box.files.chmod(path, 0o640);
    const info = await box.files.stat(path);
    expect(info).toMatchObject({ name: 'file', path, type: 'file', sizeBytes: 5, mode: 0o640 });
    expect(info.uid).toBe(Number((await box.run(['id', '-u'])).stdout));
    expect(Math.abs(info.modifiedAtMs - Date.now())).toBeLessThan(60_000);
    expect(await box.files.stat(box.dir)).toMatchObject({ type: 'directory', path: box.dir });
  });

  suite.inBox('stat() of what is missing is not_found with its errno', [], async (box) => {
    const error = await rejects(box.files.stat(`${box.dir}/missing`), 'not_found');
    expect(error.details).toMatchObject({ errno: 'ENOENT' });
  });

  suite.inBox('a symlink is described as itself, or as its target when followed', [], async (box) => {
    await box.write('target', 'content');
    await box.files.symlink(`${box.dir}/link`, 'target');
    expect(await box.files.stat(`${box.dir}/link`, { follow: false })).toMatchObject({
      type: 'symlink',
      target: 'target',
    });
    expect(await box.files.stat(`${box.dir}/link`, { follow: true })).toMatchObject({
      type: 'file',
      sizeBytes: 7,
    });
    expect((await box.read('link')).toString()).toBe('content');
  });

  suite.inBox('ls -l lists symlinks without an error', ['processes'], async (box) => {
    await box.files.symlink(`${box.dir}/link`, 'target');
    const ran = await box.run('ls -la && ls -l link', { workdir: box.dir });
    expect({ code: ran.exitCode, stderr: ran.stderr }).toEqual({ code: 0, stderr: '' });
    expect(ran.stdout).toContain('link -> target');
  });

  suite.inBox('a symlink that leads nowhere can be seen but not followed', [], async (box) => {
    await box.files.symlink(`${box.dir}/dangling`, '/no/such/place');
    expect((await box.files.stat(`${box.dir}/dangling`, { follow: false })).type).toBe('symlink');
    await rejects(box.files.stat(`${box.dir}/dangling`, { follow: true }), 'not_found');
  });

  suite.inBox('symlink() onto something that exists is already_exists', [], async (box) => {
    const path = await box.write('taken', '');
    await rejects(box.files.symlink(path, 'anywhere'), 'already_exists');
  });

  suite.inBox('a loop of symlinks is invalid_argument', [], async (box) => {
    await box.files.symlink(`${box.dir}/a`, 'b');
    await box.files.symlink(`${box.dir}/b`, 'a');
    const error = await rejects(box.files.read(`${box.dir}/a`), 'invalid_argument');
    expect(error.details).toMatchObject({ errno: 'ELOOP' });
    await rejects(box.files.read(`${box.dir}/a/below`), 'invalid_argument');
    await rejects(box.files.mkdir(`${box.dir}/a/below`), 'invalid_argument');
  });

  suite.inBox('a path through a symlink to a directory works', [], async (box) => {
    await box.write('real/file', 'through');
    await box.files.symlink(`${box.dir}/way`, `${box.dir}/real`);
    expect((await box.read('way/file')).toString()).toBe('through');
    await box.write('way/other', 'written');
    expect((await box.read('real/other')).toString()).toBe('written');
  });

  suite.inBox('read() gives all of a file, and what it is', [], async (box) => {
    const bytes = noise(300_000);
    const path = await box.write('file', bytes);
    const { info, data } = await box.files.read(path);
    expect(info).toMatchObject({ type: 'file', sizeBytes: bytes.length });
    expect((await gather(data)).equals(bytes)).toBe(true);
  });

  suite.inBox('read() gives a range', [], async (box) => {
    const bytes = noise(200_000, 2);
    const path = await box.write('file', bytes);
    const range = async (offset?: number, length?: number) =>
      gather((await box.files.read(path, { offset, length })).data);
    expect((await range(0, 10)).equals(bytes.subarray(0, 10))).toBe(true);
    expect((await range(150_000)).equals(bytes.subarray(150_000))).toBe(true);
    expect((await range(99_999, 70_000)).equals(bytes.subarray(99_999, 169_999))).toBe(true);
    expect((await range(199_990, 1000)).equals(bytes.subarray(199_990))).toBe(true);
    expect((await range(0, 0)).length).toBe(0);
    expect((await range(500_000, 10)).length).toBe(0);
  });

  suite.inBox('read() of an empty file gives nothing', [], async (box) => {
    await box.write('empty', '');
    expect((await box.read('empty')).length).toBe(0);
  });

  suite.inBox(
    'read() of a directory is invalid_argument, and of what is missing not_found',
    [],
    async (box) => {
      await rejects(
        box.files.read(box.dir).then(({ data }) => gather(data)),
        'invalid_argument',
      );
      await rejects(box.files.read(`${box.dir}/missing`), 'not_found');
    },
  );

  suite.inBox('a file used as a directory is invalid_argument', [], async (box) => {
    const path = await box.write('file', '');
    const error = await rejects(box.files.stat(`${path}/below`), 'invalid_argument');
    expect(error.details).toMatchObject({ errno: 'ENOTDIR' });
    await rejects(all(box.files.list(path)), 'invalid_argument');
  });

  suite.inBox('a reader that leaves early leaves nothing hanging', [], async (box) => {
    const path = await box.write('big', noise(4 * 1024 * 1024));
    for (let round = 0; round < 20; round++) {
      for await (const part of (await box.files.read(path)).data) {
        expect(part.length).toBeGreaterThan(0);
        break;
      }
    }
    expect((await box.files.stat(path)).sizeBytes).toBe(4 * 1024 * 1024);
  });

  suite.inBox('every odd name can be written, listed, read and removed', [], async (box) => {
    for (const name of ODD_NAMES) await box.write(name, name);
    const listed = await all(box.files.list(box.dir));
    expect(listed.map(({ name }) => name).sort()).toEqual([...ODD_NAMES].sort());
    for (const name of ODD_NAMES) {
      expect((await box.read(name)).toString()).toBe(name);
      await box.files.remove(`${box.dir}/${name}`);
    }
    expect(await all(box.files.list(box.dir))).toEqual([]);
  });

  suite.inBox('a name of 256 bytes and a path beyond 4096 are invalid_argument', [], async (box) => {
    const error = await rejects(
      box.files.write(`${box.dir}/${'n'.repeat(256)}`, Buffer.from('x')),
      'invalid_argument',
    );
    expect(error.details).toMatchObject({ errno: 'ENAMETOOLONG' });
    await rejects(box.files.stat(`${box.dir}/${'a/'.repeat(2500)}`), 'invalid_argument');
  });

  suite.inBox('list() gives the directory itself at depth 1, in the order of names', [], async (box) => {
    for (const name of ['c', 'a', 'b/inner', 'B']) await box.write(name, name);
    const infos = await all(box.files.list(box.dir));
    expect(infos.map(({ name, type }) => `${name}:${type}`)).toEqual([
      'B:file',
      'a:file',
      'b:directory',
      'c:file',
    ]);
    expect(infos[1]).toMatchObject({ path: `${box.dir}/a`, sizeBytes: 1 });
  });

  suite.inBox('list() goes as deep as it was asked to, depth first', [], async (box) => {
    for (const name of ['a/b/c/d', 'a/x', 'z']) await box.write(name, '');
    const paths = async (depth: number) =>
      (await all(box.files.list(box.dir, { depth }))).map(({ path }) => path.slice(box.dir.length + 1));
    expect(await paths(1)).toEqual(['a', 'z']);
    expect(await paths(2)).toEqual(['a', 'a/b', 'a/x', 'z']);
    expect(await paths(3)).toEqual(['a', 'a/b', 'a/b/c', 'a/x', 'z']);
    expect(await paths(10)).toEqual(['a', 'a/b', 'a/b/c', 'a/b/c/d', 'a/x', 'z']);
  });

  suite.inBox('list() shows a symlink to a directory and does not enter it', [], async (box) => {
    await box.write('real/file', '');
    await box.files.symlink(`${box.dir}/loop`, box.dir);
    const infos = await all(box.files.list(box.dir, { depth: 5 }));
    expect(infos.map(({ path }) => path.slice(box.dir.length + 1))).toEqual(['loop', 'real', 'real/file']);
    expect(infos[0]).toMatchObject({ type: 'symlink', target: box.dir });
  });

  suite.inBox('list() of 5,000 entries has each of them once', [], async (box) => {
    const made = await box.run(
      `head -c 5000 /dev/zero > /dev/null; touch ${Array.from({ length: 5000 }, (_, at) => `f${at}`).join(' ')}`,
    );
    expect(made.exitCode).toBe(0);
    const names = (await all(box.files.list(box.dir))).map(({ name }) => name);
    expect(names).toHaveLength(5000);
    expect(new Set(names).size).toBe(5000);
    expect(names).toEqual([...names].sort());
  });

  suite.inBox('list() of what is missing is not_found', [], async (box) => {
    await rejects(all(box.files.list(`${box.dir}/missing`)), 'not_found');
  });

  suite.inBox('files and commands see each other', [], async (box) => {
    await box.run('printf from-command > one');
    expect((await box.read('one')).toString()).toBe('from-command');
    await box.write('two', 'from-files');
    expect((await box.run(['cat', 'two'])).stdout).toBe('from-files');
  });
}
