/**
 * Allocates disk blocks in advance for the parts of a btrfs filesystem in a sparse file that it cannot do
 * without: superblocks and chunks of metadata.
 *
 * On a full disk a write to a hole of the file fails. For data, the writer gets an error and everything else
 * continues. For metadata, the kernel turns the whole filesystem read-only until it is unmounted, which ends
 * everything that runs on it. The kernel does not punch holes into chunks of metadata, so allocated blocks
 * stay.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { attempt, command } from './command.ts';

export interface Range {
  offset: number;
  length: number;
}

export interface Chunk extends Range {
  data: boolean;
}

const MIB = 1024 ** 2;
const GIB = 1024 * MIB;
/** Regions that no chunk uses, and where the kernel writes superblocks. */
const START = MIB;
const SUPERBLOCKS: readonly Range[] = [
  { offset: 0, length: START },
  { offset: 64 * MIB, length: 4096 },
  { offset: 256 * GIB, length: 4096 },
];

export interface ReserveOptions {
  file: string;
  /** The mount point of the filesystem in it. */
  path: string;
  /** Also allocates what the kernel will use for the next chunk of metadata. */
  ahead: boolean;
  /** What was reserved the last time. */
  before?: readonly Range[];
}

/** Resolves with what is reserved by now. Rejects if the disk has no space for it. */
export async function reserveMetadata({ file, path, ahead, before = [] }: ReserveOptions): Promise<Range[]> {
  // The tree on the disk shows a new chunk only after the kernel has written to it, so the kernel is asked.
  const { stdout, exitCode } = await attempt(['btrfs', 'inspect-internal', 'list-chunks', '--raw', path]);
  const { size } = await stat(file);
  const chunks = exitCode === 0 ? parseChunks(stdout) : [];
  const wanted = [
    ...SUPERBLOCKS,
    ...chunks.filter(({ data }) => !data),
    ...(ahead ? nextChunk(chunks, size) : []),
  ]
    .filter(({ offset, length }) => offset + length <= size)
    .map(({ offset, length }) => ({ offset, length }));
  for (const range of wanted) {
    if (before.some(({ offset, length }) => offset === range.offset && length === range.length)) continue;
    await command([
      'fallocate',
      '--keep-size',
      '--offset',
      String(range.offset),
      '--length',
      String(range.length),
      file,
    ]);
  }
  return wanted;
}

/** The output of `btrfs inspect-internal list-chunks --raw`. */
export function parseChunks(table: string): Chunk[] {
  return table.split('\n').flatMap((line) => {
    const [, type, offset, length] = /^ *\d+ +\d+ +([A-Za-z+]+)\/\S+ +(\d+) +(\d+) /.exec(line) ?? [];
    return type === undefined
      ? []
      : [{ data: type === 'Data', offset: Number(offset), length: Number(length) }];
  });
}

/** The kernel takes the first gap that is large enough. */
export function nextChunk(chunks: readonly Chunk[], size: number): Range[] {
  if (chunks.length === 0) return [];
  const length = Math.min(size > 50 * GIB ? GIB : 256 * MIB, Math.ceil(size / 10 / (16 * MIB)) * 16 * MIB);
  let offset = START;
  for (const chunk of chunks.toSorted((a, b) => a.offset - b.offset)) {
    if (chunk.offset - offset >= length) break;
    offset = chunk.offset + chunk.length;
  }
  return [{ offset, length: Math.max(0, Math.min(length, size - offset)) }];
}

/**
 * Changes whenever the filesystem has allocated another chunk. Costs reading three small files. Where the
 * kernel does not show it (`undefined`, or no such file) it never changes: then only what exists when the
 * pool is opened is reserved.
 */
export async function allocationOf(kernelDir: string | undefined): Promise<string> {
  if (kernelDir === undefined) return '';
  const kinds = ['data', 'metadata', 'system'];
  const read = (kind: string) =>
    readFile(join(kernelDir, 'allocation', kind, 'disk_total'), 'utf8').catch(() => '');
  return (await Promise.all(kinds.map(read))).join();
}
