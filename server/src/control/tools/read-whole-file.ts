import { CayError } from '@cay/sdk/protocol';
import type { Files } from '../../guest/guest.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';

/**
 * A whole file of a sandbox. What the guest says about its size, and how it grows meanwhile, changes no
 * bound.
 */
export async function readWholeFile(
  files: Pick<Files, 'read'>,
  path: string,
  { most, what, signal }: { most: number; what: string; signal: AbortSignal },
): Promise<Buffer> {
  const tooLarge = () =>
    new CayError('invalid_argument', `Cannot ${what} "${path}": it has more than ${most / 1024 ** 2} MiB`);
  const { info, data } = await files.read(path, { length: most + 1, signal });
  if (info.sizeBytes > most) throw tooLarge();
  const content = await collectBytes(data, most);
  if (!content) throw tooLarge();
  return content;
}
