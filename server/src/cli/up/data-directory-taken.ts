import type { CayError } from '@cay/sdk/client';
import { directoryInUse } from '../../host/directory-in-use.ts';

export function dataDirectoryTaken(dataDir: string, pid: unknown): CayError {
  const hint = '"cay status" shows it, "cay down" stops it; --data chooses another directory';
  return directoryInUse(dataDir, pid, hint);
}
