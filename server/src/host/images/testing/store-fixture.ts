import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { guestBinary } from '../../../guest/guest-binary.ts';
import { openSnapshotter } from '../../snapshots/open.ts';
import type { Snapshotter } from '../../snapshots/snapshotter.ts';
import type { ImageStore } from '../image.ts';
import { openImageStore, type ImageSettings } from '../open-image-store.ts';

export const IDS = { hostId: 1_879_048_192, size: 65_536 };

/** A pool of trees, and stores of images in it. */
export async function storeFixture(): Promise<{
  dir: string;
  trees: Snapshotter;
  open(settings?: ImageSettings, name?: string): Promise<ImageStore>;
  close(): Promise<void>;
}> {
  const dir = mkdtempSync(join(tmpdir(), 'cay-images-'));
  chmodSync(dir, 0o711);
  const trees = await openSnapshotter({ dir: join(dir, 'trees'), name: 'btrfs', poolBytes: 8 * 1024 ** 3 });
  const stores: ImageStore[] = [];
  return {
    dir,
    trees,
    async open(settings = {}, name = 'store') {
      const store = await openImageStore({
        dir: join(dir, name),
        trees,
        guestBinary: guestBinary(),
        settings: { retryMs: 5, ...settings },
      });
      stores.push(store);
      return store;
    },
    async close() {
      for (const store of stores) await store.close();
      await trees.destroy();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
