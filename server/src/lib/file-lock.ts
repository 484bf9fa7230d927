/**
 * An exclusive lock that the kernel releases when the process ends, however it ends.
 *
 * Node has no call for file locks, but SQLite takes real ones, so an open exclusive transaction on an empty
 * database is the lock. A note in a file next to it names the holder, for people to read.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

export interface FileLock {
  /** May be called again: it then does nothing, because the lock may belong to another process by then. */
  release(): void;
}

/** The lock, or the note of its holder. */
export function lockFile(
  path: string,
  note: Record<string, unknown>,
): { lock: FileLock } | { heldBy: Record<string, unknown> | undefined } {
  const sqlite = new DatabaseSync(path, { timeout: 0 });
  try {
    sqlite.exec('PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE');
  } catch (error) {
    sqlite.close();
    // SQLITE_BUSY: another process holds it.
    if ((error as { errcode?: number }).errcode !== 5) throw error;
    return { heldBy: readNote(path) };
  }
  writeFileSync(noteOf(path), `${JSON.stringify(note)}\n`, { mode: 0o600 });
  return {
    lock: {
      release() {
        if (!sqlite.isOpen) return;
        rmSync(noteOf(path), { force: true });
        sqlite.close();
      },
    },
  };
}

function noteOf(path: string): string {
  return `${path}.json`;
}

function readNote(path: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(readFileSync(noteOf(path), 'utf8')) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
