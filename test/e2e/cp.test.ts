import { mkdir, mkdtemp, readFile, readdir, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCay, type Cay } from '../support/cay.ts';

describe.each(['runc', 'runsc'])('cay cp on %s', (runtime) => {
  let cay: Cay;
  let dir: string;
  beforeAll(async () => {
    [cay, dir] = await Promise.all([openCay({ CAY_RUNTIME: runtime }), mkdtemp('/tmp/cay-cp-')]);
    expect((await cay.run('create', '--name', 'box')).code).toBe(0);
  });
  afterAll(async () => {
    await cay[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  });
  const done = { code: 0, stdout: '', stderr: '' };

  it('brings a file in and out again, with its mode', async () => {
    const content = randomBytes(2_000_000);
    await writeFile(join(dir, 'file'), content, { mode: 0o750 });
    expect(await cay.run('cp', join(dir, 'file'), 'box:/home/user/copy')).toEqual(done);
    expect(await cay.run('exec', 'box', 'stat', '-c', '%a %s %U', 'copy')).toMatchObject({
      stdout: '750 2000000 user\n',
    });
    expect(await cay.run('cp', 'box:copy', join(dir, 'back'))).toEqual(done);
    expect((await readFile(join(dir, 'back'))).equals(content)).toBe(true);
    expect((await stat(join(dir, 'back'))).mode & 0o777).toBe(0o750);
  });

  it('copies into a directory that exists, and under a new name otherwise', async () => {
    await writeFile(join(dir, 'named'), 'x');
    await cay.run('cp', join(dir, 'named'), 'box:/tmp');
    await cay.run('cp', join(dir, 'named'), 'box:/tmp/other');
    await cay.run('cp', join(dir, 'named'), 'box:');
    expect((await cay.run('exec', 'box', 'ls', 'named')).stdout).toBe('named\n');
    expect((await cay.run('exec', 'box', 'ls', '/tmp')).stdout).toBe('named\nother\n');
    await mkdir(join(dir, 'into'));
    await cay.run('cp', 'box:/tmp/named', join(dir, 'into'));
    expect(await readdir(join(dir, 'into'))).toEqual(['named']);
  });

  it('brings whole trees in and out again', async () => {
    const tree = join(dir, 'tree');
    await mkdir(join(tree, 'a/b'), { recursive: true });
    await writeFile(join(tree, 'a/b/f'), 'deep');
    await symlink('a/b', join(tree, 'link'));
    expect(await cay.run('cp', tree, 'box:/home/user/')).toEqual(done);
    expect(await cay.run('cp', 'box:/home/user/tree', join(dir, 'tree-back'))).toEqual(done);
    expect(await readFile(join(dir, 'tree-back/a/b/f'), 'utf8')).toBe('deep');
    expect(await readlink(join(dir, 'tree-back/link'))).toBe('a/b');
  });

  it('leaves out links that lead outside, and says so', async () => {
    await cay.run(
      'exec',
      'box',
      '--',
      'sh',
      '-c',
      'mkdir evil; ln -s /etc/passwd evil/a; ln -s ../../x evil/b; echo ok > evil/c; mkfifo evil/d',
    );
    const { code, stderr } = await cay.run('cp', 'box:evil', join(dir, 'evil'));
    expect(code).toBe(0);
    expect(stderr).toContain('left out: a: it leads to "/etc/passwd", outside');
    expect(stderr).toContain('left out: b');
    expect(await readdir(join(dir, 'evil'))).toEqual(['c']);
  });

  it('takes no more out of a sandbox than it was allowed to, and leaves no file that is cut off', async () => {
    await cay.run('exec', 'box', '--', 'sh', '-c', 'mkdir -p big && head -c 300000 /dev/zero > big/zeros');
    const one = await cay.run('cp', '--limit', '100K', 'box:big/zeros', join(dir, 'zeros'));
    expect([one.code, one.stderr]).toEqual([69, expect.stringContaining('sends more than')]);
    expect(await readdir(dir)).not.toContain('zeros');
    expect((await cay.run('cp', '--limit', '100K', 'box:big', join(dir, 'big'))).code).toBe(69);
    expect(await readdir(join(dir, 'big'))).toEqual([]);
    expect((await cay.run('cp', '--limit', '1M', 'box:big', `${dir}/`)).code).toBe(0);
    expect((await readFile(join(dir, 'big', 'zeros'))).length).toBe(300_000);
  });

  it('says what cannot be copied', async () => {
    expect(await cay.run('cp', join(dir, 'nothing'), 'box:/tmp/')).toMatchObject({
      code: 66,
      stderr: expect.stringContaining('no such file or directory') as string,
    });
    expect(await cay.run('cp', 'box:/nothing', dir)).toMatchObject({ code: 66 });
    expect(await cay.run('cp', 'a', 'b')).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('SANDBOX:PATH') as string,
    });
    expect(await cay.run('cp', join(dir, 'file'), 'box:/etc/shadow')).toMatchObject({ code: 77 });
  });
});
