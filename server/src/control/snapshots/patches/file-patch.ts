import type { FileChange } from '@cay/sdk/protocol';
import { createHash } from 'node:crypto';
import { binaryLiteral } from './binary-literal.ts';
import type { Contrast } from './contrast.ts';
import { unified } from './line-diff.ts';
import { quoteName } from './quote-name.ts';
import type { FilePair } from './sides.ts';

/**
 * One file's part of a patch, one character for each byte. `found` is absent if its content is what it was.
 */
export async function filePatch(
  { change, oldPath, newPath }: FilePair,
  found: Contrast | undefined,
): Promise<string> {
  const [oldMode, newMode] = [
    oldPath === undefined ? undefined : modeOf(change, 'before'),
    newPath === undefined ? undefined : modeOf(change, 'after'),
  ];
  const renamed = oldPath !== undefined && newPath !== undefined && oldPath !== newPath;
  const lines = renamed
    ? renameHead(oldPath, newPath, found ? similarity(found) : 100)
    : [head(oldPath ?? newPath!, newPath ?? oldPath!)];
  const modes = [];
  if (oldMode === undefined) modes.push(`new file mode ${newMode}\n`);
  else if (newMode === undefined) modes.push(`deleted file mode ${oldMode}\n`);
  else if (oldMode !== newMode) modes.push(`old mode ${oldMode}\nnew mode ${newMode}\n`);
  lines.splice(1, 0, ...modes);
  const same = found !== undefined && found.kind !== 'large' && found.before.equals(found.after);
  if (found && (!same || !oldPath || !newPath)) {
    if (found.kind !== 'large') {
      const ids = [
        oldPath === undefined ? NOTHING : blobId(found.before),
        newPath === undefined ? NOTHING : blobId(found.after),
      ];
      lines.push(`index ${ids.join('..')}${oldMode === newMode ? ` ${newMode}` : ''}\n`);
    }
    lines.push(await bodyOf(found, oldPath, newPath));
  }
  // Nothing that git would know of.
  return lines.length === 1 ? '' : lines.join('');
}

const NOTHING = '0'.repeat(40);

async function bodyOf(
  found: Contrast,
  oldPath: string | undefined,
  newPath: string | undefined,
): Promise<string> {
  const [a, b] = [
    oldPath === undefined ? '/dev/null' : name('a', oldPath),
    newPath === undefined ? '/dev/null' : name('b', newPath),
  ];
  if (found.kind === 'large') return `Binary files ${a} and ${b} differ\n`;
  if (found.kind === 'binary')
    return `GIT binary patch\n${await binaryLiteral(found.after)}${await binaryLiteral(found.before)}`;
  const hunks = unified(found.runs);
  // Without the tab a name would end at its first space.
  const ended = (text: string) => (text.includes(' ') && !text.startsWith('"') ? `${text}\t` : text);
  return hunks === '' ? '' : `--- ${ended(a)}\n+++ ${ended(b)}\n${hunks}`;
}

const name = (side: 'a' | 'b', path: string) => quoteName(side + path);
const head = (oldPath: string, newPath: string) => `diff --git ${name('a', oldPath)} ${name('b', newPath)}\n`;

/** The lines that begin the patch of a file that was moved. */
export function renameHead(from: string, to: string, percent: number): string[] {
  const places = `rename from ${quoteName(from.slice(1))}\nrename to ${quoteName(to.slice(1))}\n`;
  return [head(from, to), `similarity index ${percent}%\n${places}`];
}

function similarity(found: Contrast): number {
  if (found.kind === 'large') return 0;
  if (found.before.equals(found.after)) return 100;
  if (found.kind === 'binary') return 0;
  const kept = found.runs.reduce(
    (sum, { side, lines }) => (side === ' ' ? lines.reduce((sum, line) => sum + line.length, sum) : sum),
    0,
  );
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
