/** Registries and images that mean harm, or only fail. */
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { ImageStore } from './image.ts';
import type { ImageSettings } from './open-image-store.ts';
import { parseReference } from './reference.ts';
import { credentialsIn } from './registry/credentials.ts';
import { startHostileRegistry, type HostileRegistry } from './testing/hostile-registry.ts';
import { imageOf, layerOf, sha256, type TestImage } from './testing/test-image.ts';
import { IDS, storeFixture } from './testing/store-fixture.ts';

const why = process.getuid?.() === 0 ? undefined : 'trees need root';
if (why !== undefined) console.info(`hostile images: skipped: ${why}`);
const refused = { code: 'invalid_argument' };

describe.skipIf(why !== undefined)('hostile images', { timeout: 60_000 }, () => {
  let registry: HostileRegistry;
  let fixture: Awaited<ReturnType<typeof storeFixture>>;
  let store: ImageStore;
  let counter = 0;
  const plain = imageOf([layerOf([{ name: 'a', content: 'a' }])]);
  const at = (name: string) => parseReference(`${registry.address}/${name}`);
  /** Another store for one test: two that are open share no directory, and the pool one after the other. */
  async function withStore<T>(settings: ImageSettings, act: (own: ImageStore) => Promise<T>): Promise<T> {
    const own = await fixture.open({ insecure: [registry.address], ...settings }, `store${counter++}`);
    try {
      return await act(own);
    } finally {
      await own.close();
    }
  }

  beforeAll(async () => {
    [registry, fixture] = await Promise.all([startHostileRegistry(), storeFixture()]);
    store = await fixture.open({ insecure: [registry.address], maxImageBytes: 64 * 1024 * 1024 });
  });
  beforeEach(() => {
    registry.intercept = () => false;
    registry.requests.length = 0;
  });
  afterAll(async () => {
    await fixture?.close();
    await registry?.stop();
  });
  async function pull(image: TestImage) {
    const name = `team/x${counter++}`;
    registry.serve(name, '1', image);
    return store.prepare(at(`${name}:1`), { ids: IDS });
  }

  it('that are not what their digests say are refused, and leave nothing', async () => {
    const other = layerOf([{ name: 'b', content: 'b' }]);
    const [layer, bytes] = [...plain.blobs].at(-1)!;
    const changed = Buffer.from(bytes);
    changed[changed.length - 1]! ^= 1;
    const swapped = { ...plain, blobs: new Map(plain.blobs).set(layer, changed) };
    await expect(pull(swapped)).rejects.toMatchObject(refused);
    const config = [...plain.blobs.keys()][0]!;
    await expect(
      pull({ ...plain, blobs: new Map(plain.blobs).set(config, Buffer.from('{}')) }),
    ).rejects.toMatchObject(refused);
    // A layer that is what its digest says, with something else in it than the configuration says.
    await expect(pull(imageOf([other], { diffIds: [sha256(Buffer.from('x'))] }))).rejects.toMatchObject(
      refused,
    );
    await expect(pull(imageOf([other], { diffIds: [] }))).rejects.toMatchObject(refused);
    registry.serve('team/pinned', '1', plain);
    registry.intercept = (request, response) => {
      if (!request.url!.includes('/manifests/')) return false;
      response.end(imageOf([other]).manifest);
      return true;
    };
    await expect(store.pull(at(`team/pinned@${plain.digest}`), { ids: IDS })).rejects.toMatchObject(refused);
    expect(readdirSync(join(fixture.dir, 'store/blobs'))).toEqual([]);
    expect((await fixture.trees.list()).filter(({ name }) => name.startsWith('imagebuild-'))).toEqual([]);
  });

  it('that climb, or lead out by links, reach nothing', async () => {
    const outside = join(fixture.dir, 'outside');
    mkdirSync(outside, { recursive: true });
    writeFileSync(join(outside, 'file'), 'safe');
    const climbing = [
      [{ name: '../evil', content: 'x' }],
      [{ name: 'a/../../evil', content: 'x' }],
      [{ name: 'hard', type: 'hardlink' as const, target: '../outside/file' }],
      [{ name: '.wh...' }],
    ];
    for (const entries of climbing)
      await expect(pull(imageOf([layerOf(entries)]))).rejects.toMatchObject(refused);
    // Links are followed inside the tree alone, also those of an earlier layer and of the files that we add.
    const through = await pull(
      imageOf([
        layerOf([
          { name: 'out', type: 'symlink', target: outside },
          { name: 'etc', type: 'symlink', target: '/var' },
          { name: 'home', type: 'symlink', target: '../../../../../../var' },
        ]),
        layerOf([
          { name: `${outside.slice(1)}/kept`, content: 'inside' },
          { name: 'out/new', content: 'inside' },
        ]),
      ]),
    );
    const root = await fixture.trees.committedPath(through.tree);
    expect(readFileSync(join(root, outside, 'new'), 'utf8')).toBe('inside');
    expect(readdirSync(outside)).toEqual(['file']);
    expect(lstatSync(join(root, 'var/hosts')).isFile()).toBe(true);
    // An account file that is a link is the image's own matter.
    const linked = await pull(
      imageOf([layerOf([{ name: 'etc/passwd', type: 'symlink', target: join(outside, 'file') }])]),
    );
    expect(
      lstatSync(join(await fixture.trees.committedPath(linked.tree), 'etc/passwd')).isSymbolicLink(),
    ).toBe(true);
    expect(readFileSync(join(outside, 'file'), 'utf8')).toBe('safe');
  });

  it('that are bombs are stopped', async () => {
    const bomb = layerOf([{ name: 'zeros', content: Buffer.alloc(80 * 1024 * 1024) }]);
    await expect(pull(imageOf([bomb]))).rejects.toMatchObject({ code: 'resource_exhausted' });
    await expect(pull(imageOf([bomb], { compress: 'zstd' }))).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    const announced = JSON.parse(plain.manifest.toString()) as { layers: { size: number }[] };
    announced.layers[0]!.size = 10 ** 15;
    const manifest = Buffer.from(JSON.stringify(announced));
    await expect(pull({ ...plain, manifest })).rejects.toMatchObject({ code: 'resource_exhausted' });
    announced.layers[0]!.size = 1;
    await expect(pull({ ...plain, manifest: Buffer.from(JSON.stringify(announced)) })).rejects.toMatchObject(
      refused,
    );
    const large = { ...plain, manifest: Buffer.alloc(5 * 1024 * 1024, ' ') };
    await expect(pull(large)).rejects.toMatchObject(refused);
    for (const broken of ['[]', 'null', '{"layers":{}}', '{"manifests":[{}]}', '\u00ff'])
      await expect(pull({ ...plain, manifest: Buffer.from(broken, 'latin1') })).rejects.toMatchObject(
        refused,
      );
    await expect(pull(imageOf([Buffer.from('not a tar at all'.repeat(100))]))).rejects.toMatchObject(refused);
  });

  it('of 100,000 files are unpacked', { timeout: 300_000 }, async () => {
    const entries = Array.from({ length: 100_000 }, (_, n) => ({ name: `d${n % 100}/f${n}` }));
    registry.serve('team/many', '1', imageOf([layerOf(entries)]));
    await withStore({}, async (own) => {
      const { tree } = await own.prepare(at('team/many:1'), { ids: IDS });
      expect(readdirSync(join(await fixture.trees.committedPath(tree), 'd7'))).toHaveLength(1000);
    });
  });

  it('from a registry that breaks off go on where they were', async () => {
    const big = imageOf([layerOf([{ name: 'noise', content: Buffer.alloc(3_000_000, 'xyz') }])], {
      compress: 'none',
    });
    let cut = 3;
    registry.intercept = (request, response) => {
      if (!request.url!.includes('/blobs/') || cut === 0) return false;
      const content = big.blobs.get(request.url!.split('/').at(-1)!)!;
      if (content.length < 1_000_000) return false;
      cut--;
      const from = Number(/^bytes=([0-9]+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
      response.writeHead(from > 0 ? 206 : 200, {
        'content-length': content.length - from,
        ...(from > 0 && { 'content-range': `bytes ${from}-${content.length - 1}/${content.length}` }),
      });
      response.write(content.subarray(from, from + 700_000), () => setTimeout(() => response.destroy(), 20));
      return true;
    };
    await pull(big);
    const ranges = registry.requests.flatMap(({ path, headers }) =>
      path.includes('/blobs/') && headers.range !== undefined ? [headers.range] : [],
    );
    expect(ranges.length).toBeGreaterThanOrEqual(2);
    expect(cut).toBe(0);
  });

  it('from a busy registry are asked for again, and not for ever', async () => {
    let busy = 2;
    registry.intercept = (_, response) => {
      if (busy-- <= 0) return false;
      response.writeHead(busy === 1 ? 429 : 503, { 'retry-after': '0' }).end();
      return true;
    };
    await pull(plain);
    registry.intercept = (_, response) => (response.writeHead(503).end(), true);
    await expect(pull(imageOf([layerOf([{ name: 'never' }])]))).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  it('need tokens, which go nowhere else', async () => {
    const elsewhere = await startHostileRegistry();
    try {
      registry.serve('team/token', '1', plain);
      elsewhere.intercept = (request, response) => {
        const digest = request.url!.split('/').at(-1)!;
        response.end(plain.blobs.get(digest));
        return true;
      };
      registry.intercept = (request, response) => {
        const url = new URL(request.url!, `http://${registry.address}`);
        if (url.pathname === '/token') {
          const isOwn =
            request.headers.authorization === `Basic ${Buffer.from('me:secret').toString('base64')}`;
          response
            .writeHead(isOwn ? 200 : 401)
            .end(JSON.stringify({ token: `for-${url.searchParams.get('scope')}` }));
          return true;
        }
        if (request.headers.authorization !== 'Bearer for-repository:team/token:pull') {
          const challenge = `Bearer realm="http://${registry.address}/token",service="x",scope="repository:other:push"`;
          response.writeHead(401, { 'www-authenticate': challenge }).end();
          return true;
        }
        if (!url.pathname.includes('/blobs/')) return false;
        response.writeHead(307, { location: `http://${elsewhere.address}${url.pathname}` }).end();
        return true;
      };
      const config = join(fixture.dir, 'config.json');
      const auth = Buffer.from('me:secret').toString('base64');
      writeFileSync(config, JSON.stringify({ auths: { [`http://${registry.address}/v2/`]: { auth } } }));
      const credentials = credentialsIn(config);
      // A place that the operator has not named is not reached through a redirect either.
      const denied = { code: 'permission_denied' };
      await withStore({ credentials }, (own) =>
        expect(own.pull(at('team/token:1'), { ids: IDS })).rejects.toMatchObject(denied),
      );
      expect(elsewhere.requests).toEqual([]);
      await withStore({ credentials, insecure: [registry.address, elsewhere.address] }, (own) =>
        own.pull(at('team/token:1'), { ids: IDS }),
      );
      expect(elsewhere.requests.length).toBeGreaterThan(0);
      expect(elsewhere.requests.every(({ headers }) => headers.authorization === undefined)).toBe(true);
      const failure = await withStore({}, (own) =>
        own.pull(at('team/token:2'), { ids: IDS }).catch((error: Error) => error),
      );
      expect(failure).toMatchObject({ code: 'permission_denied' });
      expect(String((failure as Error).message)).not.toContain('secret');
    } finally {
      await elsewhere.stop();
    }
  });

  it('come from a mirror first, and from their registry if it has none', async () => {
    const mirror = await startHostileRegistry();
    try {
      registry.serve('team/mirrored', '1', plain);
      const settings = {
        insecure: [registry.address, mirror.address],
        mirrors: { [registry.address]: [mirror.address] },
      };
      await withStore(settings, (own) => own.resolve(at('team/mirrored:1')));
      expect(mirror.requests.length).toBeGreaterThan(0);
      mirror.serve('team/mirrored', '2', plain);
      registry.requests.length = 0;
      await withStore(settings, (own) => own.resolve(at('team/mirrored:2')));
      expect(registry.requests).toEqual([]);
    } finally {
      await mirror.stop();
    }
  });

  it('are not fetched from addresses that the operator has not named', async () => {
    const denied = { code: 'permission_denied' };
    await withStore({ insecure: [] }, async (closed) => {
      for (const name of ['127.0.0.1:5/x', 'localhost:5/x', '10.0.0.1/x', '[::1]:5/x', '169.254.169.254/x'])
        await expect(closed.resolve(parseReference(name))).rejects.toMatchObject(denied);
    });
    // Where clouds serve the credentials of their machines is nobody's registry.
    await withStore({ insecure: ['169.254.169.254'] }, (named) =>
      expect(named.resolve(parseReference('169.254.169.254/x'))).rejects.toMatchObject(denied),
    );
    await withStore({ insecure: [], private: [registry.address] }, (withTls) =>
      expect(withTls.resolve(at('team/x:1'))).rejects.toMatchObject({ code: 'unavailable' }),
    );
    expect(registry.requests).toEqual([]);
  });

  it('that everybody has given up are not fetched any more', async () => {
    registry.serve('team/slow', '1', plain);
    registry.intercept = (request) => request.url!.includes('/blobs/');
    const [one, two] = [new AbortController(), new AbortController()];
    const pulls = [one, two].map(({ signal }) => store.pull(at('team/slow:1'), { ids: IDS, signal }));
    const results = Promise.allSettled(pulls);
    while (registry.requests.length < 2) await new Promise((done) => setTimeout(done, 5));
    one.abort();
    await expect(pulls[0]).rejects.toMatchObject({ code: 'cancelled' });
    expect(store.progress(at('team/slow:1'))).toBeDefined();
    two.abort();
    await results;
    while (store.progress(at('team/slow:1'))) await new Promise((done) => setTimeout(done, 5));
    expect(existsSync(join(fixture.dir, 'store/index.json'))).toBe(true);
    registry.intercept = () => false;
    await store.pull(at('team/slow:1'), { ids: IDS });
  });
});
