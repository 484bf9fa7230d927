/**
 * Archives that were brought for builds, by the digest that their owner gave them; it says what is in them, and is believed
 * of a project's own only. They stay for builds to come: the least recently used go when there are too many.
 */
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { randomName } from '../../lib/random-name.ts';

export interface BuildFiles {
  has(project: string, digest: string): Promise<boolean>;
  /** Whole or not at all. Rejects `invalid_argument` for one that is too large. */
  put(project: string, digest: string, data: AsyncIterable<Uint8Array>): Promise<void>;
  /** Rejects `not_found`. */
  read(project: string, digest: string): Promise<AsyncIterable<Uint8Array>>;
}

export interface BuildFilesOptions {
  /** Default 1 GiB. */
  maxBytes?: number;
  /** Of one project together. Default 5 GiB. */
  maxTotalBytes?: number;
}

const GIB = 1024 ** 3;
const UNFINISHED = '.tmp';

export function buildFiles(directory: string, options: BuildFilesOptions = {}): BuildFiles {
  const { maxBytes = GIB, maxTotalBytes = 5 * GIB } = options;
  const ofProject = (project: string) => join(directory, project);

  function pathOf(project: string, digest: string): string {
    if (!/^[0-9a-f]{64}$/.test(digest)) throw new CayError('invalid_argument', `"${digest.slice(0, 80)}" is not a SHA-256 digest`);
    return join(ofProject(project), digest);
  }

  async function write(path: string, data: AsyncIterable<Uint8Array>): Promise<void> {
    const file = await open(path, 'wx', 0o600);
    try {
      let bytes = 0;
      for await (const chunk of data) {
        bytes += chunk.length;
        if (bytes > maxBytes)
          throw new CayError('invalid_argument', `Files for a build have at most ${maxBytes} bytes`, { details: { limitBytes: maxBytes } });
        await file.write(chunk);
      }
      await file.datasync();
    } finally {
      await file.close();
    }
  }

  /** Makes room by what was used longest ago; the newest always stays. What was cut short a while ago is nobody's. */
  async function trim(project: string, newest: string): Promise<void> {
    const found: { path: string; bytes: number; usedAtMs: number }[] = [];
    for (const name of await readdir(ofProject(project))) {
      const path = join(ofProject(project), name);
      const facts = await stat(path).catch(() => undefined);
      if (!facts || path === newest) continue;
      if (name.endsWith(UNFINISHED) && Date.now() - facts.mtimeMs > 3_600_000) await rm(path, { force: true });
      else if (!name.endsWith(UNFINISHED)) found.push({ path, bytes: facts.size, usedAtMs: facts.mtimeMs });
    }
    let total = (await stat(newest)).size + found.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { path, bytes } of found.toSorted((a, b) => a.usedAtMs - b.usedAtMs)) {
      if (total <= maxTotalBytes) return;
      await rm(path, { force: true });
      total -= bytes;
    }
  }

  return {
    has: (project, digest) =>
      stat(pathOf(project, digest)).then(
        () => true,
        () => false,
      ),
    async put(project, digest, data) {
      const path = pathOf(project, digest);
      await mkdir(ofProject(project), { recursive: true, mode: 0o700 });
      const unfinished = `${path}.${randomName(8)}${UNFINISHED}`;
      try {
        await write(unfinished, data);
        await rename(unfinished, path);
      } catch (error) {
        await rm(unfinished, { force: true });
        throw error;
      }
      await trim(project, path);
    },
    async read(project, digest) {
      const path = pathOf(project, digest);
      const now = new Date();
      try {
        await utimes(path, now, now);
      } catch {
        throw new CayError('not_found', `The files "${digest}" were not brought, or are gone`, { hint: 'bring them again' });
      }
      return createReadStream(path, { highWaterMark: 256 * 1024 });
    },
  };
}
