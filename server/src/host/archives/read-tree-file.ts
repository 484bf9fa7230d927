import { CayError } from '@cay/sdk/protocol';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readlink } from 'node:fs/promises';

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const CHUNK_BYTES = 256 * 1024;

/**
 * The content of a regular file of a tree, or the target of a symlink. Follows no symlink: one among the
 * parent directories is `not_found`. Rejects `failed_precondition` for any other type.
 */
export async function* readTreeFile(
  root: string,
  path: string,
  options: { signal?: AbortSignal } = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (path.length > 4096 || path.includes('\0') || parts.includes('..')) {
    throw new CayError('invalid_argument', `Cannot read "${path.slice(0, 100)}": it is no path without ".."`);
  }
  const name = parts.pop();
  const held: FileHandle[] = [];
  try {
    let directory = await open(root, DIRECTORY);
    held.push(directory);
    for (const part of parts) {
      directory = await open(below(directory, part), DIRECTORY);
      held.push(directory);
      // The descriptor of the parent is no longer needed.
      await held.shift()?.close();
    }
    if (name === undefined) throw unreadable(path);
    const place = below(directory, name);
    const stat = await lstat(place);
    if (stat.isSymbolicLink()) {
      yield await readlink(place, { encoding: 'buffer' });
      return;
    }
    // Opening a device may have side effects.
    if (!stat.isFile()) throw unreadable(path);
    const file = await open(place, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    held.push(file);
    yield* content(file, await file.stat(), options.signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENAMETOOLONG') {
      throw new CayError('not_found', `Cannot read "${path}": there is no such file`, { cause: error });
    }
    throw error;
  } finally {
    await Promise.all(held.map((handle) => handle.close()));
  }
}

/** Resolves through the open descriptor, whatever the path is by now. */
const below = (directory: FileHandle, name: string) => `/proc/self/fd/${directory.fd}/${name}`;

async function* content(
  file: FileHandle,
  stat: Stats,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < stat.size;) {
    signal?.throwIfAborted();
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(CHUNK_BYTES, stat.size - at)), {
      position: at,
    });
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
    at += bytesRead;
  }
}

function unreadable(path: string): CayError {
  return new CayError('failed_precondition', `Cannot read "${path}": it is neither a file nor a symlink`);
}
