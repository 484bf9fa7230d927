/** Calls of programs on the files of a mount, for tests. */
import type { BucketFiles } from '../bucket-files.ts';
import { FuseError } from '../fuse/fuse-error.ts';

/** The number of a path, as the kernel finds it. */
export async function at(files: BucketFiles, path: string): Promise<number> {
  let node = 1;
  for (const name of path.split('/').filter(Boolean)) ({ node } = await files.lookup(node, name));
  return node;
}

/** Errors that a program sees, as their numbers. */
export async function asked<T>(work: () => Promise<T>): Promise<T | number> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof FuseError) return error.errno;
    throw error;
  }
}

export async function namesIn(files: BucketFiles, path: string): Promise<string[]> {
  const node = await at(files, path);
  const handle = await files.directories.opendir(node);
  const names: string[] = [];
  await files.directories.readdir(
    node,
    { handle, offset: 2, plus: true },
    ({ name }) => names.push(name) > 0,
  );
  files.directories.releasedir(handle);
  return names.sort();
}
