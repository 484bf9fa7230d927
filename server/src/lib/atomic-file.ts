import { open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

let counter = 0;

/**
 * Replaces a file atomically: a reader, also after a crash at any moment, finds the old content or the new.
 */
export async function writeFileAtomic(
  path: string,
  content: string,
  options: { mode?: number } = {},
): Promise<void> {
  const temporary = `${path}.${process.pid}-${++counter}.tmp`;
  try {
    const file = await open(temporary, 'wx', options.mode ?? 0o600);
    try {
      await file.writeFile(content);
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
    // Makes the rename durable.
    await syncDirectory(dirname(path));
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Syncs the entries of a directory. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** The parsed content of a JSON file, or `undefined` if there is none. */
export async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
