/**
 * What happens below a directory, as E2B's clients are told. Our own way to write a file, into a temporary
 * one that takes its place, is told as what it means: the file was written, and made if it was not there.
 */
import { posix } from 'node:path';
import { CayError, type FileEvent } from '@cay/sdk/protocol';
import type { Uploads } from './uploads.ts';

export interface WatchEvent {
  name: string;
  /** Absolute. */
  path: string;
  type: string;
}

const TYPES = {
  created: 'EVENT_TYPE_CREATE',
  modified: 'EVENT_TYPE_WRITE',
  removed: 'EVENT_TYPE_REMOVE',
  renamed: 'EVENT_TYPE_RENAME',
  attributes: 'EVENT_TYPE_CHMOD',
} as const;
const TEMPORARY = /^\.cay-[0-9a-f]{24}$/;

export async function* watchEvents(
  source: AsyncIterable<FileEvent>,
  directory: string,
  uploaded: (path: string) => ReturnType<Uploads['of']>,
): AsyncGenerator<WatchEvent> {
  /** In which directories a temporary file is being written. */
  const writing = new Map<string, number>();
  const tell = (path: string, type: keyof typeof TYPES): WatchEvent => ({
    name: posix.relative(directory, path),
    path,
    type: TYPES[type],
  });
  for await (const { type, path } of source) {
    if (type === 'overflow')
      throw new CayError('conflict', 'Events were lost: more happened than could be told');
    // Of the directory itself only its end is told.
    if (path === directory && type !== 'removed') continue;
    const parent = posix.dirname(path);
    if (TEMPORARY.test(posix.basename(path))) {
      const count = (writing.get(parent) ?? 0) + (type === 'created' ? 1 : type === 'removed' ? -1 : 0);
      if (count > 0) writing.set(parent, count);
      else writing.delete(parent);
      continue;
    }
    const count = writing.get(parent) ?? 0;
    if (type !== 'renamed' || count === 0) {
      yield tell(path, type);
      continue;
    }
    if (count > 1) writing.set(parent, count - 1);
    else writing.delete(parent);
    if (uploaded(path) === 'made') yield tell(path, 'created');
    yield tell(path, 'modified');
  }
}
