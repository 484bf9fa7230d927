/** What differs as a patch that `git apply` takes, in git's own format: modes, renames, symlinks and bytes that are no text included. */
import { CayError, type FileChange } from '@cay/sdk/protocol';
import { createHash } from 'node:crypto';
import { binaryLiteral } from './binary-literal.ts';
import { type Bounds, type Contrast, contrast } from './contrast.ts';
import { unified } from './line-diff.ts';
import { quoteName } from './quote-name.ts';
import { type FilePair, moves, type Sides } from './sides.ts';

export interface PatchOptions extends Sides, Bounds {
  /** The paths of all files and symlinks that are below a directory afterwards. */
  files(path: string): AsyncIterable<string>;
  /** Of the patch. Default 1,073,741,824. Rejects `resource_exhausted` beyond. */
  maxBytes?: number;
}

/** Files of directories that were moved. */
const MOST_MOVED = 200_000;

/**
 * Streams the patch file by file. Git knows neither owners, nor directories without files, nor other modes than whether a
 * file can be run, so changes of these alone are not in it. A file beyond the bounds is only said to differ,
 * and git refuses the patch for that.
 */
export async function* patchOf(options: PatchOptions): AsyncGenerator<Uint8Array, void, undefined> {
  let left = options.maxBytes ?? 1024 ** 3;
  for await (const text of texts(options)) {
    const bytes = Buffer.from(text, 'latin1');
    left -= bytes.length;
    if (left < 0) throw new CayError('resource_exhausted', `The patch has more than ${options.maxBytes ?? 1024 ** 3} bytes`);
    if (bytes.length > 0) yield bytes;
  }
}

async function* texts(options: PatchOptions): AsyncGenerator<string, void, undefined> {
  const places = moves();
  /** Files that went along with their directory, until it turns out that more has become of them. */
  const along = new Set<string>();
  for await (const change of options.changes) {
    along.delete(change.path);
    if (change.type === 'directory' && change.change === 'renamed') {
      places.add(change);
      for await (const path of options.files(change.path)) {
        along.add(path);
        if (along.size > MOST_MOVED) throw new CayError('resource_exhausted', `The patch moves more than ${MOST_MOVED} files`);
      }
    }
    if (change.type === 'file' || change.type === 'symlink') yield await textOf(options, places.pair(change));
  }
  for (const path of along) yield rename(places.before(path), path, 100).join('');
}

async function textOf(options: PatchOptions, pair: FilePair): Promise<string> {
  const { change, oldPath, newPath } = pair;
  const [oldMode, newMode] = [
    oldPath === undefined ? undefined : modeOf(change, 'before'),
    newPath === undefined ? undefined : modeOf(change, 'after'),
  ];
  const found = change.content || !oldPath || !newPath ? await contrast(options, pair, options) : undefined;
  const renamed = oldPath !== undefined && newPath !== undefined && oldPath !== newPath;
  const lines = renamed ? rename(oldPath, newPath, found ? similarity(found) : 100) : [head(oldPath ?? newPath!, newPath ?? oldPath!)];
  const modes = [];
  if (oldMode === undefined) modes.push(`new file mode ${newMode}\n`);
  else if (newMode === undefined) modes.push(`deleted file mode ${oldMode}\n`);
  else if (oldMode !== newMode) modes.push(`old mode ${oldMode}\nnew mode ${newMode}\n`);
  lines.splice(1, 0, ...modes);
  const same = found !== undefined && found.kind !== 'large' && found.before.equals(found.after);
  if (found && (!same || !oldPath || !newPath)) {
    if (found.kind !== 'large') {
      const ids = [oldPath === undefined ? NOTHING : blobId(found.before), newPath === undefined ? NOTHING : blobId(found.after)];
      lines.push(`index ${ids.join('..')}${oldMode === newMode ? ` ${newMode}` : ''}\n`);
    }
    lines.push(await bodyOf(found, oldPath, newPath));
  }
  // Nothing that git would know of.
  return lines.length === 1 ? '' : lines.join('');
}

const NOTHING = '0'.repeat(40);

async function bodyOf(found: Contrast, oldPath: string | undefined, newPath: string | undefined): Promise<string> {
  const [a, b] = [oldPath === undefined ? '/dev/null' : name('a', oldPath), newPath === undefined ? '/dev/null' : name('b', newPath)];
  if (found.kind === 'large') return `Binary files ${a} and ${b} differ\n`;
  if (found.kind === 'binary') return `GIT binary patch\n${await binaryLiteral(found.after)}${await binaryLiteral(found.before)}`;
  const hunks = unified(found.runs);
  // Without the tab a name would end at its first space.
  const ended = (text: string) => (text.includes(' ') && !text.startsWith('"') ? `${text}\t` : text);
  return hunks === '' ? '' : `--- ${ended(a)}\n+++ ${ended(b)}\n${hunks}`;
}

const name = (side: 'a' | 'b', path: string) => quoteName(side + path);
const head = (oldPath: string, newPath: string) => `diff --git ${name('a', oldPath)} ${name('b', newPath)}\n`;

function rename(from: string, to: string, percent: number): string[] {
  const places = `rename from ${quoteName(from.slice(1))}\nrename to ${quoteName(to.slice(1))}\n`;
  return [head(from, to), `similarity index ${percent}%\n${places}`];
}

function similarity(found: Contrast): number {
  if (found.kind === 'large') return 0;
  if (found.before.equals(found.after)) return 100;
  if (found.kind === 'binary') return 0;
  const kept = found.runs.reduce((sum, { side, lines }) => (side === ' ' ? lines.reduce((sum, line) => sum + line.length, sum) : sum), 0);
  return Math.min(99, Math.floor((100 * kept) / Math.max(found.before.length, found.after.length)));
}

function modeOf(change: FileChange, side: 'before' | 'after'): string {
  if (change.type === 'symlink') return '120000';
  return ((change[side]?.mode ?? 0) & 0o100) === 0 ? '100644' : '100755';
}

/** Git wants to know that it is the file that was meant. */
function blobId(content: Buffer): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}
