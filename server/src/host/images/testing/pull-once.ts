/** A process that pulls one image, for tests that kill it: DIR, the registry and the image as arguments. */
import { join } from 'node:path';
import { guestBinary } from '../../../guest/guest-binary.ts';
import { openSnapshotter } from '../../snapshots/open.ts';
import { openImageStore } from '../open-image-store.ts';
import { parseReference } from '../reference.ts';

const [dir = '', registry = '', image = ''] = process.argv.slice(2);
const trees = await openSnapshotter({ dir: join(dir, 'trees'), name: 'btrfs' });
const store = await openImageStore({
  dir: join(dir, 'store'),
  trees,
  guestBinary: guestBinary(),
  settings: { insecure: [registry] },
});
await store.pull(parseReference(`${registry}/${image}`), { ids: { hostId: 1_879_048_192, size: 65_536 } });
await store.close();
await trees.close();
