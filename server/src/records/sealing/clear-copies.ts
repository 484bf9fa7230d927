import { readdirSync } from 'node:fs';

/** Records of this version and earlier ones were not sealed. */
export const LAST_IN_THE_CLEAR = 7;

/**
 * The names of copies of old records in a directory that have secrets in the clear. They are the operator's
 * to remove.
 */
export function clearCopies(directory: string): string[] {
  return readdirSync(directory).filter((name) => {
    const version = /^records\.db\.v(\d+)\.bak$/.exec(name)?.[1];
    return version !== undefined && Number(version) <= LAST_IN_THE_CLEAR;
  });
}
