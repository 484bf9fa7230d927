/**
 * Converts file events to those of E2B. Our way to write a file, a temporary file that is renamed, becomes
 * one event for the written file, and one for its creation if it is new.
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
  /** Directories in which a temporary file is being written. */
  const writing = new Map<string, number>();
  const eventOf = (path: string, type: keyof typeof TYPES): WatchEvent => ({
    name: posix.relative(directory, path),
    path,
    type: TYPES[type],
  });
  for await (const { type, path } of source) {
    if (type === 'overflow')
      throw new CayError('conflict', 'Events were lost: there were more than could be sent');
    // Of the watched directory itself only its removal is an event.
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
      yield eventOf(path, type);
      continue;
    }
    if (count > 1) writing.set(parent, count - 1);
    else writing.delete(parent);
    if (uploaded(path) === 'made') yield eventOf(path, 'created');
    yield eventOf(path, 'modified');
  }
}
