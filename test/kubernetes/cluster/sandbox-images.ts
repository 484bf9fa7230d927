/** The images that sandboxes need, made of this machine and taken in by a cluster. */
import { writeGuestImage } from '../../../packaging/images/guest-image.ts';
import { hostImageTar } from '../../support/host-image.ts';
import type { Cluster } from './cluster.ts';
import { writeImage } from './image.ts';

export const GUEST_IMAGE = 'cay.test/guest:1';
export const BASE_IMAGE = 'cay.test/base:1';
const BASE_ENV = ['PATH=/usr/local/bin:/usr/bin:/bin', 'OF_THE_IMAGE=yes'];

export async function importSandboxImages(cluster: Cluster): Promise<void> {
  const [guest, base] = [`${cluster.directory}/guest.tar`, `${cluster.directory}/base.tar`];
  await writeGuestImage(guest, { name: GUEST_IMAGE });
  const { stdout, done } = await hostImageTar();
  await Promise.all([writeImage(base, { name: BASE_IMAGE, layer: stdout, env: BASE_ENV }), done]);
  await cluster.importImage(guest);
  await cluster.importImage(base);
}
