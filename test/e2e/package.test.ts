/** The npm package as users have it: packed, installed into an empty directory, and run from there. */
import { execFile, spawn } from 'node:child_process';
import { chmod, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ended, type Ran } from '../support/cay.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');

let dir: string;
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  dir = await mkdtemp('/tmp/cay-package-');
  await run('npm', ['pack', '--pack-destination', dir], { cwd: join(ROOT, 'server'), maxBuffer: 2 ** 24 });
  const [tarball] = (await readdir(dir)).filter((name) => name.endsWith('.tgz'));
  // Sandboxes reach their files through it.
  await chmod(dir, 0o755);
  await writeFile(join(dir, 'package.json'), '{ "private": true }');
  const install = [
    'install',
    '--no-audit',
    '--no-fund',
    '--prefer-offline',
    '--omit=dev',
    join(dir, tarball!),
  ];
  await run('npm', install, { cwd: dir, maxBuffer: 2 ** 24 });
  const { CAY_URL: _, CAY_API_KEY: __, ...rest } = process.env;
  env = { ...rest, CAY_DATA: join(dir, 'data'), CAY_LISTEN: '127.0.0.1:0', NO_COLOR: '1' };
}, 300_000);
afterAll(async () => {
  await cay('down', '--destroy', '--yes');
  await rm(dir, { recursive: true, force: true });
});

function cay(...args: string[]): Promise<Ran> {
  const child = spawn(join(dir, 'node_modules/.bin/cay'), args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  return ended(child);
}

describe('the npm package', () => {
  it('has no tests and no sources with types in it', async () => {
    const files = await readdir(join(dir, 'node_modules/cay'), { recursive: true });
    expect(files.filter((name) => /\.ts$|\.test\.|testing/.test(name))).toEqual([]);
    expect(files).toContain('guest/cay-guest');
  });

  it('runs a sandbox on the memory backend', async () => {
    expect(await cay('version')).toMatchObject({ code: 0, stdout: expect.stringContaining('client  0.1.0') });
    expect(await cay('up', '-d', '--backend', 'memory')).toMatchObject({ code: 0 });
    expect(await cay('run', '--', 'echo', 'hi')).toEqual({ code: 0, stdout: 'hi\n', stderr: '' });
    expect((await cay('version')).stdout).toMatch(/^server  0\.1\.0$/m);
  }, 60_000);

  it('finds its guest on the local backend', async () => {
    await cay('down', '--destroy', '--yes');
    const ran = await cay('run', '--runtime', 'runc', '--', 'echo', 'isolated');
    expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'isolated\n' });
  }, 120_000);
});
