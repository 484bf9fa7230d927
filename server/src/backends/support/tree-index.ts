/**
 * An index of a tree of files: what is at each path, and a digest of its content. It is made from a tar
 * stream, for platforms that give their files in no other way.
 */
import { createHash } from 'node:crypto';
import { CayError, type FileChange } from '@cay/sdk/protocol';
import { byteReader } from '../../lib/byte-reader.ts';
import { withoutRoot } from '../../lib/tar/plain-name.ts';
import { rawEntries, type RawEntry } from '../../lib/tar/raw-entries.ts';

export interface IndexedFile {
  type: FileChange['type'];
  mode: number;
  uid: number;
  gid: number;
  size: number;
  modifiedAtMs: number;
  /** Digest of a file's content, target of a symlink, kind of anything else; empty for a directory. */
  content: string;
}

/** By path, with a slash before it; the root is not in it. One character of a path stands for one byte. */
export type TreeIndex = ReadonlyMap<string, IndexedFile>;

/** About 300 bytes of memory each. */
const MOST_FILES = 1_000_000;
/** Of names and of what links lead to. */
const MOST_NAME_BYTES = 256 * 1024 * 1024;
const TYPES: Record<string, FileChange['type']> = { '0': 'file', '2': 'symlink', '5': 'directory' };

export async function indexTree(
  tar: AsyncIterable<Uint8Array>,
  { isLeftOut = () => false }: { isLeftOut?: (name: string) => boolean } = {},
): Promise<TreeIndex> {
  const index = new Map<string, IndexedFile>();
  let nameBytes = 0;
  const reader = byteReader(tar);
  try {
    for await (const entry of rawEntries(reader)) {
      if (entry.name === '' || isLeftOut(entry.name)) continue;
      nameBytes += entry.name.length + entry.target.length;
      if (index.size >= MOST_FILES || nameBytes > MOST_NAME_BYTES)
        throw new CayError(
          'resource_exhausted',
          `Cannot compare a tree of more than ${MOST_FILES} files, or ${MOST_NAME_BYTES} bytes of names, on this platform`,
        );
      // A further name of a file: it is what the first one is.
      const same = entry.letter === '1' ? index.get(`/${withoutRoot(entry.target)}`) : undefined;
      index.set(`/${entry.name}`, same ?? (await indexed(entry)));
    }
  } finally {
    await reader.close();
  }
  return index;
}

async function indexed(entry: RawEntry): Promise<IndexedFile> {
  const { letter, mode, uid, gid, sizeBytes, modifiedAtMs, target } = entry;
  const type = TYPES[letter] ?? 'other';
  const facts = { type, mode, uid, gid, modifiedAtMs };
  if (type === 'symlink') return { ...facts, size: target.length, content: target };
  if (type !== 'file') return { ...facts, size: 0, content: type === 'other' ? letter : '' };
  const hash = createHash('sha256');
  for await (const part of entry.content) hash.update(part);
  return { ...facts, size: sizeBytes, content: hash.digest('base64url').slice(0, 27) };
}
