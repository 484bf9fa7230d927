/**
 * Processes on disk: one directory each, written once by a capture, read by any number of revivals.
 *
 *     <dir>/images/<name>/   whatever the runtime puts there, and the guest's program
 */
import { link, mkdir, open, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { GUEST_FILE } from '../../host/instances/kept-guest.ts';

export interface Images {
  path(name: string): string;
  /** Makes an empty one. */
  make(name: string): Promise<string>;
  /** Makes another name for the same content, which never changes. */
  copy(from: string, to: string): Promise<void>;
  /** What its files take. */
  bytes(name: string): Promise<number>;
  /** Resolves when a power cut would not lose it any more. */
  sync(name: string): Promise<void>;
  /** Absent is done. */
  remove(name: string): Promise<void>;
  list(): Promise<string[]>;
}

export async function openImages(dir: string): Promise<Images> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = (name: string) => join(dir, name);

  async function make(name: string): Promise<string> {
    await mkdir(path(name), { mode: 0o700 });
    return path(name);
  }

  return {
    path,
    make,
    async copy(from, to) {
      await make(to);
      for (const entry of await readdir(path(from)))
        await link(join(path(from), entry), join(path(to), entry));
      await syncPath(path(to));
      await syncPath(dir);
    },
    async bytes(name) {
      // The guest's program is shared with others.
      const entries = (await readdir(path(name))).filter((entry) => entry !== GUEST_FILE);
      const sizes = await Promise.all(
        entries.map(async (entry) => (await stat(join(path(name), entry))).size),
      );
      return sizes.reduce((sum, size) => sum + size, 0);
    },
    async sync(name) {
      for (const entry of await readdir(path(name))) await syncPath(join(path(name), entry));
      await syncPath(path(name));
      await syncPath(dir);
    },
    remove: (name) => rm(path(name), { recursive: true, force: true }),
    list: () => readdir(dir),
  };
}

async function syncPath(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
