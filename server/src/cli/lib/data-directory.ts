/** The server's data directory: made for a first start, and removed again. */
import { chmodSync, mkdirSync, rmdirSync, statSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { errnoOf } from '@cay/sdk/system-error';
import { pathError } from './path-error.ts';
import { cliFileOf, lockFileOf, logFileOf, serverFileOf } from './settings.ts';

/** Sandboxes reach their files through the directory; what is private is in files and directories below. */
const MODE = 0o711;

export interface MadeDirectory {
  /** It was not there before. */
  fresh: boolean;
  /** Removes the directories that were made, as far as they are empty. */
  undo(): void;
}

/**
 * Makes the directory and its parents one by one. Node's own recursive `mkdir` never returns below `/proc`.
 */
export function makeDataDirectory(dataDir: string): MadeDirectory {
  const made: string[] = [];
  const undo = () => {
    for (const path of made.toReversed()) {
      try {
        rmdirSync(path);
      } catch (error) {
        if (errnoOf(error) !== 'ENOENT') return;
      }
    }
  };
  const missing: string[] = [];
  for (let at = dataDir; !isDirectory(at, dataDir); at = dirname(at)) missing.push(at);
  try {
    for (const path of missing.toReversed()) {
      // Another server may have made it meanwhile.
      mkdirUnlessThere(path, made);
    }
    chmodSync(dataDir, MODE);
  } catch (error) {
    undo();
    throw pathError('create the data directory', dataDir, error, 'choose another one with --data');
  }
  return { fresh: made.includes(dataDir), undo };
}

function mkdirUnlessThere(path: string, made: string[]): void {
  try {
    mkdirSync(path, { mode: MODE });
    made.push(path);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
  }
}

function isDirectory(path: string, dataDir: string): boolean {
  let stat;
  try {
    stat = statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    if (errnoOf(error) === 'ENOTDIR') return false;
    throw pathError('use the data directory', dataDir, error, 'choose another one with --data');
  }
  if (!stat) return false;
  if (stat.isDirectory()) return true;
  throw new CayError(
    'failed_precondition',
    `Cannot use the data directory "${dataDir}": "${path}" is a file`,
    {
      hint: 'choose another one with --data',
    },
  );
}

/** Removes what a server keeps there, and the directory itself if nothing else is left in it. */
export async function removeData(dataDir: string, { keepLog = false } = {}): Promise<void> {
  const lock = lockFileOf(dataDir);
  const log = logFileOf(dataDir);
  const ours = ['engine', 'control', 'certificates'].map((name) => join(dataDir, name));
  const files = [lock, `${lock}.json`, `${lock}-journal`, cliFileOf(dataDir), serverFileOf(dataDir)];
  if (!keepLog) files.push(log, `${log}.1`);
  for (const path of [...ours, ...files]) await rm(path, { recursive: true, force: true });
  await rmdir(dataDir).catch(() => {});
}
