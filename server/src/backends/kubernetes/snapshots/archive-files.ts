/** The files of a snapshot, read from its tree as a tar archive. No symlink is followed. */
import { CayError } from '@cay/sdk/protocol';
import { byteReader } from '../../../lib/byte-reader.ts';
import { tarEnd } from '../../../lib/tar/pack.ts';
import { withoutRoot } from '../../../lib/tar/plain-name.ts';
import { rawEntries, renamedHead, type RawEntry } from '../../../lib/tar/raw-entries.ts';
import { passEntries } from '../../support/pass-entries.ts';

const MOST_PATHS = 1000;
/** Of those that are named twice in what was asked for, with the names that are remembered for them. */
const MOST_LINKS = 100_000;

type Open = () => AsyncIterable<Uint8Array>;

/** The content of a regular file, or the target of a symlink. */
export async function* readFrom(open: Open, path: string): AsyncIterable<Uint8Array> {
  const action = `read ${JSON.stringify(path.slice(0, 200))}`;
  let wanted = nameOf(path, action);
  // A hard link leads to its first name, which has the content.
  for (let turn = 0; turn < 2; turn++) {
    const reader = byteReader(open());
    let next: string | undefined;
    try {
      for await (const entry of rawEntries(reader)) {
        if (wanted === '' || entry.name !== wanted) continue;
        if (entry.letter === '0' || entry.letter === '7') {
          yield* entry.content;
          return;
        }
        if (entry.letter === '2') {
          yield Buffer.from(entry.target, 'latin1');
          return;
        }
        if (entry.letter !== '1') throw notReadable(action);
        next = withoutRoot(entry.target);
        break;
      }
    } finally {
      await reader.close();
    }
    if (wanted === '') throw notReadable(action);
    if (next === undefined) break;
    wanted = next;
  }
  throw gone(action);
}

/** These paths and everything below them. */
export async function* tarFrom(open: Open, paths: readonly string[]): AsyncIterable<Uint8Array> {
  if (paths.length === 0 || paths.length > MOST_PATHS)
    throw new CayError(
      'invalid_argument',
      `Cannot archive ${paths.length} paths: from 1 to ${MOST_PATHS} can be`,
    );
  const names = paths.map((path) => nameOf(path, `archive ${JSON.stringify(path.slice(0, 200))}`));
  const isChosen = (name: string) =>
    names.some((each) => each === '' || name === each || name.startsWith(`${each}/`));
  const firstNames = await lookForLinks(open, names, isChosen);
  yield* passEntries(open(), (entry) => headOf(entry, isChosen(entry.name), firstNames));
  yield tarEnd();
}

/**
 * Checks that all names exist. Of a file whose first name was not asked for, the first other name that was
 * asked for is returned.
 */
async function lookForLinks(
  open: Open,
  names: readonly string[],
  isChosen: (name: string) => boolean,
): Promise<ReadonlyMap<string, string>> {
  const missing = new Set(names.filter((name) => name !== ''));
  const firstNames = new Map<string, string>();
  const reader = byteReader(open());
  try {
    for await (const { name, letter, target } of rawEntries(reader)) {
      missing.delete(name);
      const first = withoutRoot(target);
      if (letter !== '1' || !isChosen(name) || isChosen(first) || firstNames.has(first)) continue;
      if (firstNames.size >= MOST_LINKS)
        throw new CayError(
          'resource_exhausted',
          `Cannot archive more than ${MOST_LINKS} further names of files without the first ones`,
        );
      firstNames.set(first, name);
    }
  } finally {
    await reader.close();
  }
  const [lost] = missing;
  if (lost !== undefined)
    throw gone(`archive ${JSON.stringify(Buffer.from(lost, 'latin1').toString().slice(0, 200))}`);
  return firstNames;
}

function headOf(
  entry: RawEntry,
  chosen: boolean,
  firstNames: ReadonlyMap<string, string>,
): Buffer | undefined {
  const standsIn = firstNames.get(entry.name);
  if (!chosen) return standsIn === undefined ? undefined : renamedHead(entry, standsIn);
  const first = entry.letter === '1' ? firstNames.get(withoutRoot(entry.target)) : undefined;
  if (first === undefined) return entry.head;
  return first === entry.name ? undefined : renamedHead(entry, entry.name, first);
}

/** As in the archive, one character for each byte. */
function nameOf(path: string, action: string): string {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (path.length > 4096 || path.includes('\0') || parts.includes('..'))
    throw new CayError('invalid_argument', `Cannot ${action}: it is no path without ".."`);
  return Buffer.from(parts.join('/')).toString('latin1');
}

const gone = (action: string) => new CayError('not_found', `Cannot ${action}: there is no such file`);
const notReadable = (action: string) =>
  new CayError('failed_precondition', `Cannot ${action}: it is neither a file nor a symlink`);
