import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  startRegistry,
  whyNoRegistry,
  type DockerRegistry,
} from '../../../../test/support/docker-registry.ts';
import type { ImageStore, PullProgress } from './image.ts';
import { parseReference } from './reference.ts';
import { imageOf, indexOf, layerOf, pushImage, pushManifest, sha256 } from './testing/test-image.ts';
import { IDS, storeFixture } from './testing/store-fixture.ts';

const why = whyNoRegistry();
if (why !== undefined) console.info(`images from a registry: skipped: ${why}`);

const base = layerOf([
  { name: 'etc', type: 'directory' },
  { name: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\n' },
  { name: 'etc/release', content: 'one' },
  { name: 'bin', type: 'directory' },
  { name: 'bin/tool', content: '#!/bin/sh\n', mode: 0o4755, uid: 5, gid: 6 },
  { name: 'lib', type: 'symlink', target: 'bin' },
]);
const second = layerOf([
  { name: 'etc/.wh.release' },
  { name: 'bin/again', type: 'hardlink', target: 'bin/tool' },
  { name: 'data/deep/file', content: 'x'.repeat(100_000) },
]);

describe.skipIf(why !== undefined)('a store of images', () => {
  let registry: DockerRegistry;
  let fixture: Awaited<ReturnType<typeof storeFixture>>;
  let store: ImageStore;
  const at = (name: string) => parseReference(`${registry.address}/${name}`);
  const config = {
    Env: ['PATH=/bin', 'A=1'],
    Cmd: ['/bin/tool'],
    WorkingDir: '/data',
    Volumes: { '/vol': {} },
  };
  const image = imageOf([base, second], { config });

  beforeAll(async () => {
    [registry, fixture] = await Promise.all([startRegistry(), storeFixture()]);
    store = await fixture.open({ insecure: [registry.address] });
    await pushImage(registry, 'team/tool', '1', image);
  });
  afterAll(async () => {
    await fixture?.close();
    await registry?.stop();
  });
  const rootOf = (tree: string) => fixture.trees.committedPath(tree);
  const imageTrees = async () => (await fixture.trees.list()).map(({ name }) => name);

  it('pulls an image into trees, as its layers say', async () => {
    const seen: PullProgress[] = [];
    const onProgress = (progress: PullProgress) => void seen.push(progress);
    const pulled = await store.pull(at('team/tool:1'), { ids: IDS, onProgress });
    expect(pulled).toMatchObject({
      digest: image.digest,
      layers: 2,
      config: { env: config.Env, workdir: '/data' },
    });
    expect(pulled.names).toEqual([`${registry.address}/team/tool:1`]);
    expect(seen.at(-1)).toMatchObject({ state: 'done', layers: [{ state: 'done' }, { state: 'done' }] });
    const { tree } = await store.prepare(at('team/tool:1'), { ids: IDS });
    const root = await rootOf(tree);
    expect(readdirSync(join(root, 'etc')).sort()).toEqual(['group', 'hosts', 'passwd', 'resolv.conf']);
    expect(readFileSync(join(root, 'etc/passwd'), 'utf8')).toContain('user:x:1000:1000::/home/user:/bin/sh');
    const tool = statSync(join(root, 'bin/tool'));
    expect([tool.mode & 0o7777, tool.uid, tool.gid, tool.nlink]).toEqual([
      0o4755,
      IDS.hostId + 5,
      IDS.hostId + 6,
      2,
    ]);
    expect(lstatSync(join(root, 'lib')).isSymbolicLink()).toBe(true);
    expect(statSync(join(root, 'home/user')).uid).toBe(IDS.hostId + 1000);
    expect(statSync(join(root, 'tmp')).mode & 0o7777).toBe(0o1777);
    expect(statSync(join(root, 'vol')).isDirectory()).toBe(true);
    expect(statSync(join(root, 'data/deep/file')).size).toBe(100_000);
    expect(readdirSync(join(fixture.dir, 'store/blobs'))).toEqual([]);
  });

  it('finds it again without a network, by tag and by digest, for its own repository alone', async () => {
    const offline = await fixture.open();
    const found = offline.find(at('team/tool:1'));
    expect(found?.digest).toBe(image.digest);
    expect(offline.find(at(`team/tool@${image.digest}`))?.digest).toBe(image.digest);
    expect(offline.find(at(`team/other@${image.digest}`))).toBeUndefined();
    expect((await offline.prepare(at('team/tool:1'), { ids: IDS })).tree).toMatch(/^image-/);
    await expect(offline.pull(at('team/tool:2'), { ids: IDS })).rejects.toMatchObject({
      code: 'permission_denied',
    });
  });

  it('shares the trees of layers that images have in common, and pulls one image once', async () => {
    const before = new Set(await imageTrees());
    const more = imageOf([base, layerOf([{ name: 'more', content: 'y' }])], { compress: 'zstd' });
    await pushImage(registry, 'team/more', '1', more);
    const [one, two] = await Promise.all([
      store.prepare(at('team/more:1'), { ids: IDS }),
      store.prepare(at('team/more:1'), { ids: IDS }),
    ]);
    expect(one.tree).toBe(two.tree);
    const added = (await imageTrees()).filter((name) => !before.has(name));
    // The layer that is new, and what every sandbox needs above it.
    expect(added).toHaveLength(2);
    expect(existsSync(join(await rootOf(one.tree), 'etc/release'))).toBe(true);
  });

  it('takes the manifest of this machine from an index, and pins the index', async () => {
    const other = imageOf([layerOf([{ name: 'wrong', content: 'x' }])], { architecture: 'riscv64' });
    const own = process.arch === 'arm64' ? 'arm64' : 'amd64';
    const index = indexOf([
      { image: other, architecture: 'riscv64' },
      { image, architecture: own },
    ]);
    await pushImage(registry, 'team/multi', 'riscv', other);
    await pushImage(registry, 'team/multi', 'own', image);
    await pushManifest(registry, 'team/multi', 'all', index);
    expect((await store.pull(at('team/multi:all'), { ids: IDS })).digest).toBe(sha256(index));
    await expect(store.pull(at('team/multi:riscv'), { ids: IDS })).rejects.toMatchObject({
      code: 'unsupported',
    });
  });

  it('says what is not there', async () => {
    await expect(store.pull(at('team/tool:none'), { ids: IDS })).rejects.toMatchObject({ code: 'not_found' });
    await expect(store.resolve(at('nobody/x'))).rejects.toMatchObject({ code: 'not_found' });
    await expect(store.remove(at('team/tool:none'))).rejects.toMatchObject({ code: 'not_found' });
  });

  it('follows a tag that moves only when it is pulled again', async () => {
    const [old, young] = ['a', 'b'].map((content) => imageOf([base, layerOf([{ name: 'v', content }])]));
    await pushImage(registry, 'team/moving', 'latest', old!);
    await store.pull(at('team/moving'), { ids: IDS });
    await pushImage(registry, 'team/moving', 'latest', young!);
    expect((await store.prepare(at('team/moving'), { ids: IDS })).digest).toBe(old!.digest);
    expect((await store.pull(at('team/moving'), { ids: IDS })).digest).toBe(young!.digest);
    expect((await store.prepare(at(`team/moving@${old!.digest}`), { ids: IDS })).digest).toBe(old!.digest);
  });

  it('removes unused images, oldest first, and keeps those that a sandbox uses', async () => {
    const own = await fixture.open({ insecure: [registry.address] }, 'collected');
    const images = ['p', 'q', 'r'].map((content) => imageOf([layerOf([{ name: content, content }])]));
    for (const [at_, each] of images.entries()) await pushImage(registry, 'team/gc', String(at_), each);
    const used = await own.prepare(at('team/gc:0'), { ids: IDS });
    await own.prepare(at('team/gc:1'), { ids: IDS });
    await own.prepare(at('team/gc:2'), { ids: IDS });
    await fixture.trees.prepare('i-standing', { parent: used.tree });
    await expect(own.remove(at('team/gc:0'))).rejects.toMatchObject({ code: 'failed_precondition' });
    // A pool belongs to one store, so that this one sweeps the trees of the others too.
    expect(await own.collect({ maxBytes: 0 })).toEqual([images[1]!.digest, images[2]!.digest]);
    expect(own.list().map(({ digest }) => digest)).toEqual([images[0]!.digest]);
    expect(await imageTrees()).toContain(used.tree);
    await fixture.trees.remove('i-standing');
    await own.remove(at('team/gc:0'));
    expect(await imageTrees()).not.toContain(used.tree);
    expect(own.list()).toEqual([]);
  });

  it('works with what skopeo pushes, unpacked as umoci unpacks it', { timeout: 60_000 }, async () => {
    if (!existsSync('/usr/bin/skopeo') || !existsSync('/usr/bin/umoci'))
      return console.info('skopeo and umoci: skipped: they are not installed');
    const fresh = await fixture.open({ insecure: [registry.address] }, 'compared');
    const layout = join(fixture.dir, 'layout');
    const insecure = ['--src-tls-verify=false', '--insecure-policy'];
    execFileSync('skopeo', [
      'copy',
      ...insecure,
      `docker://${registry.address}/team/tool:1`,
      `oci:${layout}:1`,
    ]);
    execFileSync('umoci', ['raw', 'unpack', '--image', `${layout}:1`, join(fixture.dir, 'unpacked')]);
    const { tree } = await fresh.prepare(at('team/tool:1'), { ids: IDS });
    const root = await rootOf(tree);
    const listing = (dir: string) =>
      execFileSync('find', ['.', '-type', 'f', '-printf', '%p %s %m\n'], { cwd: dir, encoding: 'utf8' })
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('./etc/'))
        .sort();
    expect(listing(root)).toEqual(listing(join(fixture.dir, 'unpacked')));
  });
});
