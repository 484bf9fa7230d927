import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gunzipSync } from 'node:zlib';
import { crateLicences } from '../../packaging/images/crate-licences.ts';
import { layerOf, writeImage } from '../../packaging/images/image.ts';
import { run } from '../../server/src/lib/run.ts';

interface Described {
  digest: string;
  size: number;
}

describe('an image that is written without a daemon', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cay-images-'));
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  const write = (file: string, compress: boolean) =>
    writeImage(join(directory, file), {
      name: 'cay/test:1',
      compress,
      entrypoint: ['/bin/x'],
      layer: layerOf([
        { path: 'bin/x', mode: 0o755, content: Buffer.from('program') },
        { path: 'bin/y', target: 'x' },
      ]),
    });

  it.each([true, false])(
    'is an OCI layout whose parts are what their digests say, compressed: %s',
    async (compress) => {
      const digest = await write('image.tar', compress);
      await run('tar', ['xf', join(directory, 'image.tar'), '-C', directory]);
      const read = (path: string) => readFile(join(directory, path));
      const json = async <T>(path: string) => JSON.parse((await read(path)).toString()) as T;
      const blob = async ({ digest: named, size }: Described) => {
        const content = await read(`blobs/${named.replace(':', '/')}`);
        expect([`sha256:${createHash('sha256').update(content).digest('hex')}`, content.length]).toEqual([
          named,
          size,
        ]);
        return content;
      };
      const { manifests } = await json<{
        manifests: (Described & { annotations: Record<string, string> })[];
      }>('index.json');
      expect(manifests[0]).toMatchObject({
        digest,
        annotations: { 'io.containerd.image.name': 'docker.io/cay/test:1' },
      });
      const manifest = JSON.parse((await blob(manifests[0]!)).toString()) as {
        config: Described;
        layers: Described[];
      };
      const config = JSON.parse((await blob(manifest.config)).toString()) as {
        rootfs: { diff_ids: string[] };
      };
      const stored = await blob(manifest.layers[0]!);
      const layer = compress ? gunzipSync(stored) : stored;
      expect(`sha256:${createHash('sha256').update(layer).digest('hex')}`).toBe(config.rootfs.diff_ids[0]);
      const [docker] = await json<{ Config: string; Layers: string[] }[]>('manifest.json');
      expect(docker).toMatchObject({
        Config: `blobs/${manifest.config.digest.replace(':', '/')}`,
        RepoTags: ['cay/test:1'],
      });
    },
  );

  it('is the same each time', async () => {
    expect(await write('one.tar', true)).toBe(await write('other.tar', true));
    expect(await readFile(join(directory, 'one.tar'))).toEqual(await readFile(join(directory, 'other.tar')));
  });
});

describe('the image of the guest', () => {
  it('has the licences of all that is linked into the program', async () => {
    const files = await crateLicences();
    const crates = new Set(files.map(({ path }) => path.split('/')[1]!.replace(/-\d.*$/, '')));
    expect([...crates]).toEqual(expect.arrayContaining(['libc', 'snow', 'curve25519-dalek', 'subtle']));
    expect([...crates]).not.toContain('cay-guest');
    expect(files.every(({ content }) => content.length > 0)).toBe(true);
  });
});
