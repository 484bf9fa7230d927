/**
 * The image that the guest comes in: the program with the licences of its parts, and the accounts that
 * sandboxes know.
 */
import { readFile } from 'node:fs/promises';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import { crateLicences } from './crate-licences.ts';
import { layerOf, writeImage } from './image.ts';

const PASSWD =
  'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n';
const GROUP = 'root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n';

export const ACCOUNTS = [
  { path: 'etc/passwd', mode: 0o644, content: Buffer.from(PASSWD) },
  { path: 'etc/group', mode: 0o644, content: Buffer.from(GROUP) },
];

export async function writeGuestImage(
  file: string,
  options: { name: string; compress?: boolean },
): Promise<string> {
  const [content, licences] = await Promise.all([readFile(guestBinary()), crateLicences()]);
  const layer = layerOf([{ path: 'cay-guest', mode: 0o755, content }, ...ACCOUNTS, ...licences]);
  return writeImage(file, { ...options, layer, entrypoint: ['/cay-guest'] });
}
