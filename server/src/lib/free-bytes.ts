import { statfs } from 'node:fs/promises';

/** What users of the machine may still write to the disk that has this directory. */
export async function freeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}
