/** Pulls that are killed between any two steps: nothing half is ever used, and the next pull goes on. */
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { guestBinary } from '../../guest/guest-binary.ts';
import { openSnapshotter } from '../snapshots/open.ts';
import { LAYER_FAULTS } from './layer-trees.ts';
import { openImageStore } from './open-image-store.ts';
import { PULL_FAULTS } from './pull-image.ts';
import { parseReference } from './reference.ts';
import { startHostileRegistry, type HostileRegistry } from './testing/hostile-registry.ts';
import { imageOf, layerOf } from './testing/test-image.ts';
import { IDS } from './testing/store-fixture.ts';

const why = process.getuid?.() === 0 ? undefined : 'trees need root';
if (why !== undefined) console.info(`killed pulls: skipped: ${why}`);

describe.skipIf(why !== undefined)('a pull that is killed', { timeout: 60_000 }, () => {
  let registry: HostileRegistry;
  let dir: string;
  const image = imageOf(
    ['one', 'two', 'three'].map((name) =>
      layerOf([
        { name, content: name },
        { name: 'last', content: name },
      ]),
    ),
  );
  beforeAll(async () => {
    registry = await startHostileRegistry();
    registry.serve('team/tool', '1', image);
    dir = mkdtempSync(join(tmpdir(), 'cay-image-faults-'));
    chmodSync(dir, 0o711);
  });
  afterAll(async () => {
    await registry?.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  /** In another process, so that it dies as a server does. It needs the registry of this one to answer. */
  async function killedAt(point: string): Promise<string | null> {
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, 'testing/pull-once.ts'), dir, registry.address, 'team/tool:1'],
      { env: { ...process.env, CAY_FAULT_POINTS: JSON.stringify({ [point]: 'kill' }) }, stdio: 'ignore' },
    );
    return new Promise((done) => child.once('exit', (_, signal) => done(signal)));
  }

  it.each([...PULL_FAULTS, ...LAYER_FAULTS])('at %s leaves nothing half, and is finished', async (point) => {
    expect(await killedAt(point)).toBe('SIGKILL');
    const trees = await openSnapshotter({ dir: join(dir, 'trees'), name: 'btrfs' });
    try {
      const settings = { insecure: [registry.address] };
      const store = await openImageStore({
        dir: join(dir, 'store'),
        trees,
        guestBinary: guestBinary(),
        settings,
      });
      const reference = parseReference(`${registry.address}/team/tool:1`);
      // What is found without a pull is whole.
      if (point !== 'images.pull.done') expect(store.find(reference)).toBeUndefined();
      await store.collect();
      expect((await trees.list()).filter(({ name }) => name.startsWith('imagebuild-'))).toEqual([]);
      const { tree, digest } = await store.prepare(reference, { ids: IDS });
      expect(digest).toBe(image.digest);
      const root = await trees.committedPath(tree);
      expect(readFileSync(join(root, 'last'), 'utf8')).toBe('three');
      expect(readdirSync(root)).toEqual(expect.arrayContaining(['one', 'two', 'three', 'tmp']));
      expect(readdirSync(join(dir, 'store/blobs'))).toEqual([]);
      await store.remove(reference);
      expect((await trees.list()).filter(({ name }) => name.startsWith('image'))).toEqual([]);
      await store.close();
    } finally {
      await trees.close();
    }
  });

  it('goes on with the layers that were unpacked before', async () => {
    expect(await killedAt('images.layer.committed')).toBe('SIGKILL');
    const trees = await openSnapshotter({ dir: join(dir, 'trees'), name: 'btrfs' });
    const settings = { insecure: [registry.address] };
    const store = await openImageStore({
      dir: join(dir, 'store'),
      trees,
      guestBinary: guestBinary(),
      settings,
    });
    const before = (await trees.list())
      .filter(({ name }) => name.startsWith('image-'))
      .map(({ name }) => name);
    await store.collect();
    await store.prepare(parseReference(`${registry.address}/team/tool:1`), { ids: IDS });
    const after = (await trees.list()).map(({ name }) => name);
    expect(before.length).toBeGreaterThan(0);
    expect(after).toEqual(expect.arrayContaining(before));
    await store.close();
    await trees.destroy();
    expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(dir);
  });
});
