/** The images that sandboxes need, made of this machine and taken in by a cluster. */
import { guestBinary } from '../../../server/src/guest/guest-binary.ts';
import { readFile } from 'node:fs/promises';
import { hostImageTar } from '../../support/host-image.ts';
import type { Cluster } from './cluster.ts';
import { layerOf, writeImage } from './image.ts';

export const GUEST_IMAGE = 'cay.test/guest:1';
export const BASE_IMAGE = 'cay.test/base:1';

const PASSWD = 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n';
const GROUP = 'root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n';

export async function importSandboxImages(cluster: Cluster): Promise<void> {
  const [guest, base] = [`${cluster.directory}/guest.tar`, `${cluster.directory}/base.tar`];
  await writeImage(guest, {
    name: GUEST_IMAGE,
    layer: layerOf([
      { path: 'cay-guest', mode: 0o755, content: await readFile(guestBinary()) },
      { path: 'etc/passwd', mode: 0o644, content: Buffer.from(PASSWD) },
      { path: 'etc/group', mode: 0o644, content: Buffer.from(GROUP) },
    ]),
    entrypoint: ['/cay-guest'],
  });
  const { stdout, done } = await hostImageTar();
  await Promise.all([writeImage(base, { name: BASE_IMAGE, layer: stdout }), done]);
  await cluster.importImage(guest);
  await cluster.importImage(base);
}
