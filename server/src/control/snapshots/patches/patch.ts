/**
 * What differs as a patch that `git apply` takes, in git's own format: modes, renames, symlinks and bytes
 * that are no text included.
 */
import { CayError } from '@cay/sdk/protocol';
import type { Bounds } from './contrast.ts';
import { openDiffer, type Differ } from './differ.ts';
import { renameHead } from './file-patch.ts';
import { moves, type FilePair, type Sides } from './sides.ts';

export interface PatchOptions extends Sides, Bounds {
  /** The paths of all files and symlinks that are below a directory afterwards. */
  files(path: string): AsyncIterable<string>;
  signal?: AbortSignal;
  /** Writes paths relative to this directory, and leaves out what is outside. Default: the root. */
  relativeTo?: string;
  /** Of the patch. Default 1,073,741,824. Rejects `resource_exhausted` beyond. */
  maxBytes?: number;
}

/** Files of directories that were moved. */
const MOST_MOVED = 200_000;
const MOST_MOVED_BYTES = 32 * 1024 * 1024;
/** What a reader gets at once. */
const PIECE_BYTES = 64 * 1024;

/**
 * Streams the patch file by file. Git knows neither owners, nor directories without files, nor other modes
 * than whether a file can be run, so changes of these alone are not in it. A file beyond the bounds is only
 * said to differ, and git refuses the patch for that.
 */
export async function* patchOf(options: PatchOptions): AsyncGenerator<Uint8Array, void, undefined> {
  let left = options.maxBytes ?? 1024 ** 3;
  using differ = openDiffer(options, options.signal);
  for await (const bytes of patches(options, differ)) {
    left -= bytes.length;
    if (left < 0)
      throw new CayError(
        'resource_exhausted',
        `The patch has more than ${options.maxBytes ?? 1024 ** 3} bytes`,
      );
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
  }
}

async function* patches(options: PatchOptions, differ: Differ): AsyncGenerator<Uint8Array, void, undefined> {
  const places = moves();
  const shown = shownBelow(options.relativeTo);
  /** Files that went along with their directory, until it turns out that more has become of them. */
  const along = new Set<string>();
  let alongBytes = 0;
  for await (const change of options.changes) {
    along.delete(change.path);
    if (change.type === 'directory' && change.change === 'renamed') {
      places.add(change);
      for await (const path of options.files(change.path)) {
        along.add(path);
        alongBytes += path.length;
        if (along.size > MOST_MOVED || alongBytes > MOST_MOVED_BYTES)
          throw new CayError(
            'resource_exhausted',
            `The patch moves more than ${MOST_MOVED} files, or ${MOST_MOVED_BYTES} bytes of paths`,
          );
      }
    }
    if (change.type !== 'file' && change.type !== 'symlink') continue;
    const pair = inside(places.pair(change), shown);
    if (pair) yield await differ.patch(pair, shownPair(pair, shown));
  }
  for (const path of along) {
    const [from, to] = [shown(places.before(path)), shown(path)];
    if (to === undefined) continue;
    if (from === undefined)
      throw new CayError(
        'failed_precondition',
        `"${path}" came with its directory from outside "${options.relativeTo}"`,
        { hint: 'leave out "relative"' },
      );
    yield Buffer.from(renameHead(from, to, 100).join(''), 'latin1');
  }
}

/** The path as it is written, with a slash in front; undefined for one outside. */
type Shown = (path: string) => string | undefined;

function shownBelow(directory: string | undefined): Shown {
  if (directory === undefined || directory === '/') return (path) => path;
  const prefix = directory.replace(/\/+$/, '');
  return (path) => (path.startsWith(`${prefix}/`) ? path.slice(prefix.length) : undefined);
}

/** A file that came from outside is new here, and one that went outside is gone. */
function inside({ change, oldPath, newPath }: FilePair, shown: Shown): FilePair | undefined {
  const old = oldPath !== undefined && shown(oldPath) !== undefined ? { oldPath } : {};
  const now = newPath !== undefined && shown(newPath) !== undefined ? { newPath } : {};
  const pair = { change, ...old, ...now };
  return 'oldPath' in pair || 'newPath' in pair ? pair : undefined;
}

function shownPair({ change, oldPath, newPath }: FilePair, shown: Shown): FilePair {
  return {
    change,
    ...(oldPath !== undefined && { oldPath: shown(oldPath)! }),
    ...(newPath !== undefined && { newPath: shown(newPath)! }),
  };
}
