import { CayError, type DiffStat } from '@cay/sdk/protocol';
import type { Bounds } from './contrast.ts';
import { openDiffer } from './differ.ts';
import { moves, type Sides } from './sides.ts';

const MOST_FILES = 100_000;
/** Of their paths. */
const MOST_BYTES = 16 * 1024 * 1024;

/** How much differs, file by file. A directory is among them only if it was moved, and then as one. */
export async function statOf(options: Sides & Bounds & { signal?: AbortSignal }): Promise<DiffStat> {
  using differ = openDiffer(options, options.signal);
  let bytes = 0;
  const places = moves();
  const stat: DiffStat = { files: [], insertions: 0, deletions: 0 };
  for await (const change of options.changes) {
    if (change.type === 'directory') {
      if (change.change !== 'renamed') continue;
      places.add(change);
    }
    const pair = places.pair(change);
    const readable = change.type === 'file' || change.type === 'symlink';
    const { binary, ...counts } = readable
      ? await differ.count(pair)
      : { insertions: 0, deletions: 0, binary: false };
    bytes += change.path.length;
    if (stat.files.length >= MOST_FILES || bytes > MOST_BYTES) {
      throw new CayError(
        'resource_exhausted',
        `More than ${MOST_FILES} files differ, or their paths have more than ${MOST_BYTES} bytes`,
        {
          hint: 'compare one directory after the other, with "path"',
        },
      );
    }
    stat.files.push({ path: change.path, change: change.change, ...counts, binary });
    stat.insertions += counts.insertions;
    stat.deletions += counts.deletions;
  }
  return stat;
}
