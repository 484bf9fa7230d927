import type { BigIntStats } from 'node:fs';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, readdir, readlink } from 'node:fs/promises';
import type { FileChange } from '@cay/sdk/protocol';

/**
 * One path of an immutable tree. Paths are relative to the root of the tree and start with a slash; the path
 * of the root is empty. Each character stands for one byte, because names need not be UTF-8.
 */
export interface TreeEntry {
  path: string;
  type: FileChange['type'];
  stat: EntryStat;
}

/** The compared part of `stat`, small because a hundred thousand may be held at once. */
type EntryStat = Pick<
  BigIntStats,
  'ino' | 'birthtimeNs' | 'mtimeNs' | 'ctimeNs' | 'size' | 'mode' | 'uid' | 'gid' | 'rdev' | 'nlink'
>;

/** Bytes of a file that may differ. */
export interface ByteRange {
  offset: number;
  length: number;
}

/** The longest path that the host can open. */
const MAX_PATH_BYTES = 4095;
const CHUNK = 256 * 1024;

function onHost(root: string, path: string): Buffer {
  return Buffer.concat([Buffer.from(root), Buffer.from(path, 'latin1')]);
}

/** Resolves `undefined` if there is no entry. Does not follow a symlink in the last component. */
export async function readEntry(root: string, path: string): Promise<TreeEntry | undefined> {
  try {
    const stat = await lstat(onHost(root, path), { bigint: true });
    const type = stat.isFile()
      ? 'file'
      : stat.isDirectory()
        ? 'directory'
        : stat.isSymbolicLink()
          ? 'symlink'
          : 'other';
    const { ino, birthtimeNs, mtimeNs, ctimeNs, size, mode, uid, gid, rdev, nlink } = stat;
    return { path, type, stat: { ino, birthtimeNs, mtimeNs, ctimeNs, size, mode, uid, gid, rdev, nlink } };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ENAMETOOLONG') return undefined;
    throw error;
  }
}

/** Names in a directory, unsorted. Empty if the path is too long for the host. */
export async function readNames(root: string, path: string): Promise<string[]> {
  const at = onHost(root, path);
  if (at.length > MAX_PATH_BYTES) return [];
  return readdir(at, { encoding: 'latin1' });
}

/** Whether two entries of one type differ in content. With `ranges`, only those bytes are compared. */
export async function differsInContent(
  [fromRoot, from]: readonly [string, TreeEntry],
  [toRoot, to]: readonly [string, TreeEntry],
  { ranges, signal }: { ranges?: readonly ByteRange[] | undefined; signal?: AbortSignal | undefined } = {},
): Promise<boolean> {
  if (from.type === 'directory') return false;
  if (from.type === 'other')
    return from.stat.rdev !== to.stat.rdev || (from.stat.mode ^ to.stat.mode) >> 12n !== 0n;
  if (from.stat.size !== to.stat.size) return true;
  const [a, b] = [onHost(fromRoot, from.path), onHost(toRoot, to.path)];
  if (from.type === 'symlink') {
    const [one, other] = await Promise.all([
      readlink(a, { encoding: 'buffer' }),
      readlink(b, { encoding: 'buffer' }),
    ]);
    return !one.equals(other);
  }
  const size = Number(from.stat.size);
  const files: FileHandle[] = [];
  try {
    for (const path of [a, b]) files.push(await open(path, constants.O_RDONLY | constants.O_NOFOLLOW));
    const buffers = [Buffer.allocUnsafe(CHUNK), Buffer.allocUnsafe(CHUNK)];
    for (const { offset, length } of ranges ?? [{ offset: 0, length: size }]) {
      const end = Math.min(offset + length, size);
      for (let at = offset; at < end; at += CHUNK) {
        signal?.throwIfAborted();
        const wanted = Math.min(CHUNK, end - at);
        const [one, other] = await Promise.all(
          files.map((file, index) => file.read(buffers[index]!, 0, wanted, at)),
        );
        const read = one!.bytesRead;
        if (read !== other!.bytesRead || buffers[0]!.compare(buffers[1]!, 0, read, 0, read) !== 0)
          return true;
        if (read < wanted) break;
      }
    }
    return false;
  } finally {
    for (const file of files) await file.close();
  }
}
