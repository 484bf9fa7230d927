/** Images through the command line: from a registry with a password, and from archives. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Image, Sandbox } from '@cay/sdk/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { imageOf, layerOf, pushImage, sha256 } from '../../server/src/host/images/testing/test-image.ts';
import { writeImage } from '../../packaging/images/image.ts';
import { openCay, type Cay } from '../support/cay.ts';
import { startRegistry, whyNoRegistry, type DockerRegistry } from '../support/docker-registry.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const BUSYBOX = '/bin/busybox';
const missing = [BUSYBOX, '/usr/bin/htpasswd'].find((path) => !existsSync(path));
const why = whyNoLocal() ?? whyNoRegistry() ?? (missing && `${missing} is not installed`);
if (why !== undefined) console.info(`images through the command line: skipped: ${why}`);

const PASSWORD = 'correct horse';
const APPLETS = ['sh', 'cat', 'echo', 'id', 'pwd', 'sleep'];

describe.skipIf(why !== undefined)('cay image', { timeout: 120_000 }, () => {
  let cay: Cay;
  let registry: DockerRegistry;
  let dir: string;
  let name: string;
  const layer = layerOf([
    { name: 'bin', type: 'directory' },
    { name: 'bin/busybox', mode: 0o755, content: existsSync(BUSYBOX) ? readFileSync(BUSYBOX) : '' },
    ...APPLETS.map((applet) => ({ name: `bin/${applet}`, type: 'symlink' as const, target: 'busybox' })),
    { name: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\nworker:x:7:7::/work:/bin/sh\n' },
  ]);
  const image = imageOf([layer], {
    config: {
      Env: ['PATH=/bin', 'GREETING=hello'],
      Entrypoint: ['sh', '-c'],
      Cmd: ['echo $GREETING from $(pwd) as $(id -un)'],
      User: 'worker',
      WorkingDir: '/work',
      ExposedPorts: { '8000/tcp': {} },
    },
  });

  beforeAll(async () => {
    dir = await mkdtemp('/tmp/cay-e2e-images-');
    const htpasswd = execFileSync('htpasswd', ['-nbB', 'cay', PASSWORD], { encoding: 'utf8' });
    registry = await startRegistry({ htpasswd });
    name = `${registry.address}/team/tool:1`;
    const authorization = `Basic ${Buffer.from(`cay:${PASSWORD}`).toString('base64')}`;
    await pushImage({ address: registry.address, authorization }, 'team/tool', '1', image);
    const auth = Buffer.from(`cay:${PASSWORD}`).toString('base64');
    const config = join(dir, 'config.json');
    await writeFile(config, JSON.stringify({ auths: { [registry.address]: { auth } } }), { mode: 0o600 });
    cay = await openCay({
      CAY_RUNTIME: 'runc',
      CAY_INSECURE_REGISTRY: registry.address,
      CAY_REGISTRY_CONFIG: config,
    });
    const { code, stderr } = await cay.run('up', '-d');
    if (code !== 0) throw new Error(stderr);
  });
  afterAll(async () => {
    await cay?.[Symbol.asyncDispose]();
    await registry?.stop();
    await rm(dir, { recursive: true, force: true });
  });

  it('runs the own command of an image that it pulls with a password', async () => {
    expect(await cay.run('run', '--image', name)).toEqual({
      code: 0,
      stdout: 'hello from /work as worker\n',
      stderr: '',
    });
    expect(await cay.run('run', '--image', name, '--', 'echo', 'other')).toMatchObject({
      code: 0,
      stdout: 'other\n',
    });
    expect((await cay.run('run', '--image', name, '-u', 'root', '--', 'id', '-u')).stdout).toBe('0\n');
  });

  it('records the digest, and what the image says', async () => {
    const made = await cay.json<Sandbox['info']>('create', '--name', 'pinned', '--image', name);
    expect(made).toMatchObject({
      template: `${name}@${image.digest}`,
      user: 'worker',
      workdir: '/work',
      ports: [{ port: 8000, visibility: 'private' }],
    });
    expect((await cay.run('inspect', 'pinned')).stdout).toContain(image.digest);
    expect(await cay.run('image', 'rm', name)).toMatchObject({ code: 65 });
    expect((await cay.run('fork', 'pinned')).code).toBe(0);
    expect((await cay.run('rm', '--all', '--yes')).code).toBe(0);
    const served = await cay.json<Sandbox['info']>('create', '--image', name, '--image-command');
    expect((await cay.run('logs', served.id)).stdout).toBe('hello from /work as worker\n');
    expect((await cay.run('rm', '--all', '--yes')).code).toBe(0);
  });

  it('lists, inspects and removes', async () => {
    const listed = await cay.run('image', 'ls');
    expect(listed.stdout).toMatch(new RegExp(`${name} +${image.digest.slice(7, 19)}`));
    const found = await cay.json<Image>('image', 'inspect', name);
    expect(found).toMatchObject({ digest: image.digest, names: [name], config: { user: 'worker' } });
    expect((await cay.run('image', 'inspect', name)).stdout).toContain('GREETING=hello');
    expect(await cay.run('image', 'rm', name)).toMatchObject({ code: 0, stdout: `${name}\n` });
    expect(await cay.json<Image[]>('image', 'ls')).toEqual([]);
    expect(await cay.run('image', 'rm', name)).toMatchObject({ code: 66 });
    const pulled = await cay.run('image', 'pull', name);
    expect(pulled).toMatchObject({ code: 0, stdout: `${name} ${image.digest}\n` });
    expect(await cay.run('image', 'pull', `${registry.address}/team/none`)).toMatchObject({ code: 66 });
  });

  it('takes in archives and a root filesystem', async () => {
    const archive = join(dir, 'image.tar');
    const tar = async function* () {
      yield layer;
    };
    await writeImage(archive, {
      name: 'imported:2',
      layer: tar(),
      cmd: ['echo', 'archived'],
      env: ['PATH=/bin'],
    });
    expect((await cay.run('image', 'import', archive)).stdout).toMatch(/^imported:2 sha256:/);
    expect((await cay.run('run', '--image', 'imported:2')).stdout).toBe('archived\n');

    execFileSync('tar', ['-xf', archive, '-C', dir, '--one-top-level=layout']);
    expect((await cay.run('image', 'import', join(dir, 'layout'), '--name', 'laid:out')).code).toBe(0);
    expect((await cay.run('run', '--image', 'laid:out')).stdout).toBe('archived\n');

    // An archive as older engines wrote it has no index.
    execFileSync('tar', ['-cf', join(dir, 'saved.tar'), '-C', join(dir, 'layout'), 'manifest.json', 'blobs']);
    expect((await cay.run('image', 'import', join(dir, 'saved.tar'), '--name', 'saved:1')).code).toBe(0);
    expect((await cay.run('run', '--image', 'saved:1')).stdout).toBe('archived\n');

    await writeFile(join(dir, 'root.tar'), layer);
    execFileSync('gzip', ['-k', join(dir, 'root.tar')]);
    expect(statSync(join(dir, 'root.tar.gz')).size).toBeGreaterThan(0);
    expect((await cay.run('image', 'import', join(dir, 'root.tar.gz'))).code).toBe(64);
    const rooted = await cay.json<Image>('image', 'import', join(dir, 'root.tar.gz'), '--name', 'root:1');
    expect(rooted.digest).toBe(sha256(layer));
    const id = await cay.run('run', '--image', 'root:1', '--', '/bin/id', '-un');
    expect(id.stdout).toBe('user\n');
  });

  it('says what is wrong', async () => {
    expect(await cay.run('run', '--image', 'imported:2', '--template', 'base', 'true')).toMatchObject({
      code: 64,
    });
    expect(await cay.run('run', '--image', 'root:1')).toMatchObject({ code: 125 });
    expect(await cay.run('run')).toMatchObject({ code: 64 });
    const elsewhere = await cay.run('run', '--image', '127.0.0.1:9/x', 'true');
    expect(elsewhere.code).toBe(125);
    expect(elsewhere.stderr).toContain('--allow-registry');
    const log = readFileSync(join(cay.dataDir, 'server.log'), 'utf8');
    expect(log).not.toContain(PASSWORD);
    expect(log).not.toContain(Buffer.from(`cay:${PASSWORD}`).toString('base64'));
  });
});
