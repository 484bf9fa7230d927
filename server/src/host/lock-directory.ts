import { join } from 'node:path';
import { directoryInUse } from './directory-in-use.ts';
import { lockFile, type FileLock } from '../lib/file-lock.ts';

/**
 * Takes the lock of a data directory for this process. Throws `failed_precondition`, with the holder's
 * process id in `details.pid` (null if it is unknown), if another server holds it.
 */
export function lockDirectory(directory: string, file = 'lock'): FileLock {
  const result = lockFile(join(directory, file), { pid: process.pid, startedAtMs: Date.now() });
  if ('lock' in result) return result.lock;
  throw directoryInUse(directory, result.heldBy?.['pid']);
}
