/**
 * Checks a tree that comes as a tar archive, for platforms that unpack archives themselves: no name leads
 * elsewhere, nothing is below what is no directory, a hard link is to a file of the same archive, and there are
 * no devices. Yields the same entries.
 */
import { CayError } from '@cay/sdk/protocol';
import { byteReader, TruncatedError } from '../../lib/byte-reader.ts';
import { tarEnd } from '../../lib/tar/pack.ts';
import { contentPadding, rawEntries, type RawEntry } from '../../lib/tar/raw-entries.ts';

const MOST_FILES = 2_000_000;
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
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = byteReader(tar);
  const types = new Map<string, 'file' | 'link' | 'directory'>();
  try {
    for await (const entry of rawEntries(reader)) {
      check(entry, types);
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

function check(entry: RawEntry, types: Map<string, 'file' | 'link' | 'directory'>): void {
  const { name, letter, target, records } = entry;
  const type = TYPES[letter];
  const shown = JSON.stringify(name.slice(0, 200));
  if (!type) throw refused(`${shown} is of a type that no sandbox has`);
  if (name === '' && type === 'directory') return;
  const parts = name.split('/');
  if (parts.some((part) => part === '..' || part === '.' || part === ''))
    throw refused(`the name ${shown} leads elsewhere`);
  if (parts.at(-1)!.startsWith('.wh.'))
    throw refused(`the name ${shown} means something else to this platform`);
  for (const key of records.keys())
    if (ATTRIBUTE.test(key)) throw refused(`${shown} has an attribute that no sandbox can set`);
  for (let length = 1; length < parts.length; length++) {
    const above = parts.slice(0, length).join('/');
    const known = types.get(above);
    if (known === undefined) types.set(above, 'directory');
    else if (known !== 'directory') throw refused(`${shown} is below what is no directory`);
  }
  const before = types.get(name);
  if (before !== undefined && (before === 'directory') !== (type === 'directory'))
    throw refused(`${shown} is there twice, once as a directory`);
  if (letter === '1' && types.get(target.replace(/^(\.?\/)+/, '')) !== 'file')
    throw refused(`${shown} is a link to what is no file of it`);
  types.set(name, type);
  if (types.size > MOST_FILES) throw refused(`it has more than ${MOST_FILES} files`);
}

const refused = (why: string, cause?: unknown) =>
  new CayError('invalid_argument', `The archive is damaged: ${why}`, { cause });
