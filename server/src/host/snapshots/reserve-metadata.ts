/**
 * Gives the parts of a btrfs filesystem in a sparse file that it cannot do without their blocks on the disk for good: superblocks, and
 * the chunks of metadata.
 *
 * On a disk that is full a write to a hole of the file fails. Where that is data, its writer is told and all else goes on. Where it is
 * metadata, the kernel turns the whole filesystem read-only, and only unmounting it helps, which takes the end of everything that runs
 * on it. The kernel does not punch holes into chunks of metadata, so what has its blocks keeps them.
 */
import { stat } from 'node:fs/promises';
import { attempt, command } from './command.ts';

export interface Range {
  offset: number;
  length: number;
}

const MIB = 1024 ** 2;
/** Where the kernel writes superblocks. The first one lies in what no chunk ever uses. */
const SUPERBLOCKS: readonly Range[] = [
  { offset: 0, length: MIB },
  { offset: 64 * MIB, length: 4096 },
  { offset: 256 * 1024 * MIB, length: 4096 },
];

/** Resolves to what has been reserved by now; `before` is what was at the last time. Rejects if the disk has no room for it. */
export async function reserveMetadata(file: string, device: string, before: readonly Range[] = []): Promise<Range[]> {
  // The kernel may be changing it meanwhile: what is seen now may be a moment old, or not to be read at all.
  const { stdout, exitCode } = await attempt(['btrfs', 'inspect-internal', 'dump-tree', '-t', 'chunk', device]);
  const { size } = await stat(file);
  const wanted = [...SUPERBLOCKS, ...(exitCode === 0 ? metadataChunks(stdout) : [])].filter(
    ({ offset, length }) => offset + length <= size,
  );
  for (const range of wanted) {
    if (before.some(({ offset, length }) => offset === range.offset && length === range.length)) continue;
    await command(['fallocate', '--keep-size', '--offset', String(range.offset), '--length', String(range.length), file]);
  }
  return wanted;
}

/** Where the chunks that are not only data lie on the device, by what `btrfs inspect-internal dump-tree -t chunk` prints. */
export function metadataChunks(dump: string): Range[] {
  return dump
    .split(/^\titem /m)
    .filter((item) => item.includes('CHUNK_ITEM') && /\btype \S*(?:METADATA|SYSTEM)/.test(item))
    .flatMap((item) => {
      const length = Number(/\blength (\d+)/.exec(item)?.[1]);
      const stripes = [...item.matchAll(/\bstripe \d+ devid 1 offset (\d+)/g)];
      return stripes.map(([, offset]) => ({ offset: Number(offset), length }));
    })
    .filter(({ offset, length }) => Number.isSafeInteger(offset) && Number.isSafeInteger(length) && length > 0);
}
