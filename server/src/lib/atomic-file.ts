import { open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

let counter = 0;

/**
 * What a power loss may do to a file that was just written, if anything: `nothing`, `undo` (the old content
 * or the new is there), or `anything`. A crash of this process does nothing to it in any case.
 */
export type PowerLoss = 'nothing' | 'undo' | 'anything';

/**
 * Replaces a file atomically: a reader, also after a crash at any moment, finds the old content or the new.
 * To wait for the disk takes longer than all else; `powerLoss` says what need not be waited for.
 */
export async function writeFileAtomic(
  path: string,
  content: string,
  options: { mode?: number; powerLoss?: PowerLoss } = {},
): Promise<void> {
  const { powerLoss = 'nothing' } = options;
  const temporary = `${path}.${process.pid}-${++counter}.tmp`;
  try {
    const file = await open(temporary, 'wx', options.mode ?? 0o600);
    try {
      await file.writeFile(content);
      if (powerLoss !== 'anything') await file.datasync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
    // Makes the rename durable.
    if (powerLoss === 'nothing') await syncDirectory(dirname(path));
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
