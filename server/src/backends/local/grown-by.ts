import type { Engine } from './engine.ts';
import type { SnapshotRecord } from './snapshot-record.ts';

/**
 * What a committed tree keeps on disk that was not kept of its source before. Where a copy shares its files
 * with the source, that is what the source has written since the last copy of it that is still there. It is
 * read from counters, which a commit has just brought up to date.
 */
export async function grownBy(
  { resources, snapshots, onError }: Engine,
  tree: string,
  source: string,
): Promise<Grown> {
  const { trees } = resources;
  try {
    if (!trees.capabilities.instant) return { fileBytes: await trees.usage(tree) };
    const writtenBytes = await trees.written(source);
    if (writtenBytes === undefined) return {};
    let before = 0;
    for (const other of snapshots.all.values())
      if (other.source === source) before = Math.max(before, other.writtenBytes ?? 0);
    return { source, writtenBytes, fileBytes: Math.max(0, writtenBytes - before) };
  } catch (error) {
    // A snapshot does not fail because its size cannot be counted.
    onError(error);
    return {};
  }
}

type Grown = Pick<SnapshotRecord, 'source' | 'writtenBytes' | 'fileBytes'>;
