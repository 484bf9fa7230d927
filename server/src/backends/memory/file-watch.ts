import type { FileEvent } from '@cay/sdk/protocol';
import { changeSignal } from './change-signal.ts';
import type { FileTree } from './file-tree.ts';

const MAX_PENDING = 16_384;

export interface WatchOptions {
  /** Where it really is, and the name it was asked for by: events have that name. */
  realPath: string;
  path: string;
  recursive: boolean;
  /** Aborted when the watch has to end. */
  signals: (AbortSignal | undefined)[];
}

/** Begins at once; events that are not read in time become one `overflow`. */
export function watchTree(
  tree: FileTree,
  { realPath, path, recursive, signals }: WatchOptions,
): AsyncIterable<FileEvent> {
  const pending: FileEvent[] = [];
  const changed = changeSignal();
  let over = false;

  const prefix = realPath === '/' ? '/' : `${realPath}/`;
  const listener = (type: FileEvent['type'], at: string) => {
    const below = at.startsWith(prefix) ? at.slice(prefix.length) : undefined;
    if (at !== realPath && (below === undefined || (!recursive && below.includes('/')))) return;
    if (pending.length < MAX_PENDING)
      pending.push({ type, path: below === undefined ? path : `${path.replace(/\/$/, '')}/${below}` });
    else if (pending.at(-1)!.type !== 'overflow') pending.push({ type: 'overflow', path });
    changed.notify();
  };
  const stop = () => {
    over = true;
    tree.listeners.delete(listener);
    changed.notify();
  };
  tree.listeners.add(listener);
  for (const signal of signals) signal?.addEventListener('abort', stop, { once: true });

  // Written out, because a generator that waits inside next() would make return() wait too.
  const iterator: AsyncIterableIterator<FileEvent> = {
    async next() {
      while (!over && pending.length === 0) await changed.wait();
      const value = over ? undefined : pending.shift();
      return value ? { done: false, value } : { done: true, value: undefined };
    },
    async return() {
      stop();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]: () => iterator,
  };
  return iterator;
}
