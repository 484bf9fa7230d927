import { CayError, type DiffStat } from '@cay/sdk/protocol';
import { type Bounds, contrast } from './contrast.ts';
import { countLines } from './line-diff.ts';
import { moves, type Sides } from './sides.ts';

const MOST_FILES = 100_000;

/** How much differs, file by file. A directory is among them only if it was moved, and then as one. */
export async function statOf(options: Sides & Bounds): Promise<DiffStat> {
  const places = moves();
  const stat: DiffStat = { files: [], insertions: 0, deletions: 0 };
  for await (const change of options.changes) {
    if (change.type === 'directory') {
      if (change.change !== 'renamed') continue;
      places.add(change);
    }
    const pair = places.pair(change);
    const readable = change.type === 'file' || change.type === 'symlink';
    const found = readable && (change.content || !pair.oldPath || !pair.newPath) ? await contrast(options, pair, options) : undefined;
    const counts = found?.kind === 'text' ? countLines(found.runs) : { insertions: 0, deletions: 0 };
    if (stat.files.length >= MOST_FILES) throw new CayError('resource_exhausted', `More than ${MOST_FILES} files differ`);
    stat.files.push({ path: change.path, change: change.change, ...counts, binary: found !== undefined && found.kind !== 'text' });
    stat.insertions += counts.insertions;
    stat.deletions += counts.deletions;
  }
  return stat;
}
