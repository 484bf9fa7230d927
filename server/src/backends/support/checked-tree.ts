/**
 * Checks a tree that comes as a tar archive, for platforms that unpack archives themselves: no name leads
 * elsewhere, nothing is below what is no directory, a hard link is to a file of the same archive, and there
 * are no devices. Yields the same entries.
 */
import { CayError } from '@cay/sdk/protocol';
import { byteReader, TruncatedError } from '../../lib/byte-reader.ts';
import { tarEnd } from '../../lib/tar/pack.ts';
import { withoutRoot } from '../../lib/tar/plain-name.ts';
import { contentPadding, rawEntries, type RawEntry } from '../../lib/tar/raw-entries.ts';

const MOST_FILES = 2_000_000;
/** Longer ones no program can give to the kernel. */
const LONGEST_NAME = 4096;
/** They are remembered, all of them. */
const MOST_NAME_BYTES = 128 * 1024 * 1024;
const TYPES: Record<string, 'file' | 'link' | 'directory'> = {
  '0': 'file',
  '7': 'file',
  '1': 'file',
  '2': 'link',
  '5': 'directory',
  '6': 'link',
};
/** Others mean something to the storage below, and not to programs. */
const ATTRIBUTE = /^SCHILY\.xattr\.(?!user\.|security\.capability$)/;

export async function* checkedTree(
  tar: AsyncIterable<Uint8Array>,
  { allowMarks = false }: { allowMarks?: boolean } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = byteReader(tar);
  const seen: Seen = { types: new Map(), bytes: 0 };
  try {
    for await (const entry of rawEntries(reader)) {
      check(entry, seen, allowMarks);
      yield entry.head;
      yield* entry.content;
      if (entry.sizeBytes % 512 !== 0) yield contentPadding(entry);
    }
    yield tarEnd();
  } catch (error) {
    if (error instanceof CayError) throw error;
    if (error instanceof TruncatedError || (error as Error).constructor === Error)
      throw refused((error as Error).message, error);
    throw error;
  } finally {
    await reader.close();
  }
}

interface Seen {
  readonly types: Map<string, 'file' | 'link' | 'directory'>;
  /** Of all names. */
  bytes: number;
}

function check(entry: RawEntry, seen: Seen, allowMarks: boolean): void {
  const { name, letter, target, records } = entry;
  const { types } = seen;
  const type = TYPES[letter];
  const shown = JSON.stringify(name.slice(0, 200));
  if (!type) throw refused(`${shown} is of a type that no sandbox has`);
  if (name === '' && type === 'directory') return;
  if (name.length > LONGEST_NAME) throw refused(`the name ${shown} is too long`);
  const parts = name.split('/');
  if (parts.some((part) => part === '..' || part === '.' || part === ''))
    throw refused(`the name ${shown} leads elsewhere`);
  if (!allowMarks && parts.at(-1)!.startsWith('.wh.'))
    throw refused(`the name ${shown} means something else to this platform`);
  for (const key of records.keys())
    if (ATTRIBUTE.test(key)) throw refused(`${shown} has an attribute that no sandbox can set`);
  const remember = (path: string, what: 'file' | 'link' | 'directory') => {
    if (!types.has(path)) seen.bytes += path.length;
    types.set(path, what);
    if (types.size > MOST_FILES) throw refused(`it has more than ${MOST_FILES} files`);
    if (seen.bytes > MOST_NAME_BYTES) throw refused('its names are too long together');
  };
  // Above a directory that is known all are known.
  for (let end = name.lastIndexOf('/'); end > 0; end = name.lastIndexOf('/', end - 1)) {
    const above = name.slice(0, end);
    const known = types.get(above);
    if (known === 'directory') break;
    if (known !== undefined) throw refused(`${shown} is below what is no directory`);
    remember(above, 'directory');
  }
  const before = types.get(name);
  if (before !== undefined && (before === 'directory') !== (type === 'directory'))
    throw refused(`${shown} is there twice, once as a directory`);
  if (letter === '1' && types.get(withoutRoot(target)) !== 'file')
    throw refused(`${shown} is a link to what is no file of it`);
  remember(name, type);
}

const refused = (why: string, cause?: unknown) =>
  new CayError('invalid_argument', `The archive is damaged: ${why}`, { cause });
