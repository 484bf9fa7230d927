/**
 * Keeps the guest's program for as long as processes need it.
 *
 * A memory image maps the very program that the guest was started from: with another build in its place the
 * restored guest runs into whatever lies there now. So each instance and each memory image has a hard link to
 * its program. The filesystem counts the links, and the program is gone when nothing needs it any more.
 *
 *     <dir>/guests/<digest>             the program that new instances get
 *     <dir>/instances/<name>/guest      a link to the program of that instance
 *     <dir>/images/<name>/guest         a link to the program of the processes in that image
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, link, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../../lib/atomic-file.ts';
import { faultPoint } from '../../lib/fault-point.ts';

export const GUEST_FILE = 'guest';

export const KEEP_GUEST_FAULTS = ['guests.copied', 'guests.stored'] as const;

/** A restore compares times of files with those of the capture. With one time for all, any copy will do. */
const MODIFIED = new Date('2000-01-01T00:00:00Z');

/**
 * Copies the program to where it does not change when a new one is built, and resolves the path. Earlier
 * ones go: what still needs one has a link of its own.
 */
export async function storeGuest(dir: string, binary: string): Promise<string> {
  const digest = await digestOf(binary);
  await mkdir(dir, { recursive: true, mode: 0o711 });
  const path = join(dir, digest);
  const names = await readdir(dir);
  if (!names.includes(digest) || (await digestOf(path)) !== digest) {
    await copy(binary, `${path}.tmp`);
    await faultPoint('guests.copied');
    await rename(`${path}.tmp`, path);
    await syncDirectory(dir);
  }
  await faultPoint('guests.stored');
  for (const name of names) if (name !== digest) await rm(join(dir, name), { force: true });
  return path;
}

async function digestOf(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

/** Gives the program at `from` one more path. */
export async function keepGuest(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Another filesystem, or one that has no links or no more of them.
    if (code !== 'EXDEV' && code !== 'EPERM' && code !== 'EMLINK' && code !== 'ENOTSUP') throw error;
    await copy(from, to);
  }
}

/**
 * Makes the program of an image that was copied in byte by byte what it was. Does nothing if there is none.
 */
export async function restoreKeptGuest(imageDir: string): Promise<void> {
  const path = join(imageDir, GUEST_FILE);
  if (existsSync(path)) await finish(path);
}

async function copy(from: string, to: string): Promise<void> {
  await copyFile(from, to);
  await finish(to);
}

async function finish(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.chmod(0o755);
    await file.utimes(MODIFIED, MODIFIED);
    await file.sync();
  } finally {
    await file.close();
  }
}
