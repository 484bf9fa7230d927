/**
 * A store in a local or mounted directory. Each object is one file with the object's name. `put` writes to a
 * temporary file whose name no object can have, syncs it, and renames it to the object's name.
 *
 * One process at a time opens a directory: opening removes the temporary files of interrupted puts.
 */
import { CayError } from '@cay/sdk/protocol';
import { constants } from 'node:fs';
import { lstat, mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../lib/atomic-file.ts';
import { isDiskFull } from '../lib/disk-full.ts';
import { randomName } from '../lib/random-name.ts';
import { isObjectName, requireObjectName, requirePrefix } from './object-name.ts';
import type { Store, StoredObject } from './store.ts';

const CHUNK_BYTES = 1024 * 1024;
const TEMPORARY = '.put-';

export interface DirectoryStoreOptions {
  /** Created if it is missing. */
  dir: string;
}

export async function openDirectoryStore({ dir }: DirectoryStoreOptions): Promise<Store> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  for (const name of await readdir(dir))
    if (name.startsWith(TEMPORARY)) await rm(join(dir, name), { force: true });

  async function describe(name: string): Promise<StoredObject | undefined> {
    const found = await lstat(join(dir, name)).catch(absent);
    return found?.isFile() ? { name, sizeBytes: found.size } : undefined;
  }

  return {
    name: 'directory',
    async put(name, content, { signal } = {}) {
      requireObjectName(name);
      signal?.throwIfAborted();
      const temporary = join(dir, `${TEMPORARY}${randomName(20)}`);
      let sizeBytes = 0;
      try {
        const file = await open(temporary, 'wx', 0o600);
        try {
          for await (const chunk of content) {
            signal?.throwIfAborted();
            await file.writeFile(chunk);
            sizeBytes += chunk.length;
          }
          await file.sync();
        } finally {
          await file.close();
        }
        signal?.throwIfAborted();
        await rename(temporary, join(dir, name));
        // Makes the rename durable.
        await syncDirectory(dir);
      } catch (error) {
        await rm(temporary, { force: true });
        if (isDiskFull(error))
          throw new CayError('resource_exhausted', `Cannot store object "${name}": the disk is full`, {
            cause: error,
          });
        throw error;
      }
      return { name, sizeBytes };
    },
    async *get(name, { signal } = {}) {
      requireObjectName(name);
      const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
      const file = (await describe(name)) && (await open(join(dir, name), flags).catch(absent));
      if (!file) throw new CayError('not_found', `No object "${name}" in the store`);
      try {
        for (;;) {
          signal?.throwIfAborted();
          const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES);
          if (bytesRead === 0) return;
          yield buffer.subarray(0, bytesRead);
        }
      } finally {
        await file.close();
      }
    },
    async stat(name) {
      requireObjectName(name);
      return describe(name);
    },
    async remove(name) {
      requireObjectName(name);
      await rm(join(dir, name), { force: true });
      await syncDirectory(dir);
    },
    async list(prefix = '') {
      requirePrefix(prefix);
      const names = (await readdir(dir))
        .filter((name) => isObjectName(name) && name.startsWith(prefix))
        .sort();
      const objects: StoredObject[] = [];
      for (const name of names) {
        const found = await describe(name);
        if (found) objects.push(found);
      }
      return objects;
    },
    // Nothing is held open between calls.
    close: async () => {},
  };
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
