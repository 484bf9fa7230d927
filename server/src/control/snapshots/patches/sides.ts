import type { FileChange } from '@cay/sdk/protocol';

/** Two trees of files, by what differs between them. */
export interface Sides {
  /** In the order of paths. A directory that was moved is one entry, and what differs below it follows. */
  changes: AsyncIterable<FileChange>;
  /** Content of a file, or the target of a symlink. */
  before(path: string): AsyncIterable<Uint8Array>;
  after(path: string): AsyncIterable<Uint8Array>;
}

/** One file or symlink that differs, with the place where it was before. */
export interface FilePair {
  change: FileChange;
  /** Absent if it was added. */
  oldPath?: string;
  /** Absent if it was removed. */
  newPath?: string;
}

/** Where things were before directories above them were moved. */
export interface Moves {
  add(change: FileChange): void;
  pair(change: FileChange): FilePair;
  /** The old path of what is below a moved directory now, and of anything else its own. */
  before(path: string): string;
}

export function moves(): Moves {
  const moved = new Map<string, string>();
  function before(path: string): string {
    // The longest prefix first: a directory further down may have been moved by itself.
    for (let end = path.length; end > 0; end = path.lastIndexOf('/', end - 1)) {
      const from = moved.get(path.slice(0, end));
      if (from !== undefined) return from + path.slice(end);
    }
    return path;
  }
  return {
    before,
    add: ({ path, from }) => {
      if (from !== undefined) moved.set(path, from);
    },
    pair: (change) => ({
      change,
      ...(change.change !== 'added' && {
        oldPath: change.from ?? (change.change === 'modified' ? before(change.path) : change.path),
      }),
      ...(change.change !== 'removed' && { newPath: change.path }),
    }),
  };
}
