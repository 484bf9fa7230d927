import { join } from 'node:path';
import { afterAll, describe } from 'vitest';
import { snapshotterSuite } from '../../../../test/conformance/snapshotter-suite.ts';
import { MIB } from '../../../../test/conformance/snapshotter-world.ts';
import { startZfsPool, unmountZfs, type ZfsPool, zfs } from '../../../../test/conformance/snapshotter-zfs.ts';
import { openZfs } from './zfs.ts';

let pool: ZfsPool | undefined;
const reason = await start();
if (reason) console.warn(`Skipping the tests of zfs: ${reason}`);

async function start(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'they need root';
  try {
    pool = await startZfsPool();
    return undefined;
  } catch (error) {
    return String(error);
  }
}

describe.skipIf(reason !== undefined)('zfs', () => {
  afterAll(() => pool?.stop(), 60_000);

  snapshotterSuite('zfs', {
    open: (options) => openZfs({ ...options, dataset: pool!.name }),
    reboot: (dir) => unmountZfs(join(dir, 'pool')),
    openSmall: async (dir) => {
      await zfs('create', '-o', `quota=${200 * MIB}`, `${pool!.name}/small`);
      const trees = await openZfs({ dir, dataset: `${pool!.name}/small` });
      return { trees, end: () => zfs('destroy', `${pool!.name}/small`) };
    },
    slow: true,
    noXattrs: 'zfs-fuse has none',
  });
});
