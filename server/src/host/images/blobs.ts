/**
 * Layers on their way from a registry into a tree: files named by where they come from, whole or `.part`. A
 * fetch goes on where an earlier one ended, in this process or another, and is checked against the digest as
 * a whole.
 *
 * What comes from one repository is not shared with another: its registry may be slow or send other bytes,
 * and a pull of the same layer from elsewhere must not wait for it.
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { pathExists } from '../../lib/path-exists.ts';
import { isDiskFull } from '../../lib/disk-full.ts';
import type { Descriptor } from './manifest.ts';
import type { Content } from './registry/registry.ts';

export interface FetchOptions {
  /** Opens the content from an offset on. */
  open(offset: number): Promise<Content>;
  onBytes(fetched: number): void;
  signal?: AbortSignal | undefined;
}

export interface Blobs {
  /** Resolves when the whole blob is here and is what its digest says. */
  fetch(key: string, blob: Descriptor, options: FetchOptions): Promise<void>;
  path(key: string): string;
  remove(key: string): Promise<void>;
  /** Removes all but those. */
  keep(keys: ReadonlySet<string>): Promise<void>;
}

/** What a layer of a repository (`registry/repository`) is called here. */
export const blobKey = (repository: string, digest: string) => `${repository} ${digest}`;

/** In a row, without a byte of progress. */
const TRIES = 5;
const RETRY_MS = 300;

export async function openBlobs(dir: string): Promise<Blobs> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = (key: string) => join(dir, createHash('sha256').update(key).digest('hex'));
  const part = (key: string) => `${path(key)}.part`;

  async function fetch(key: string, blob: Descriptor, options: FetchOptions): Promise<void> {
    if (await pathExists(path(key))) return options.onBytes(blob.size);
    const file = await open(part(key), 'a+', 0o600);
    try {
      let { hash, bytes } = await hashOf(part(key), blob.size);
      if (bytes === 0) await file.truncate(0);
      for (let tries = 1; bytes < blob.size || blob.size === 0; tries++) {
        const before = bytes;
        try {
          ({ hash, bytes } = await receive(file, blob, { hash, bytes }, options));
          if (blob.size === 0) break;
        } catch (error) {
          if (options.signal?.aborted) throw options.signal.reason;
          if (isDiskFull(error)) throw full(blob);
          const has = (await file.stat()).size;
          ({ hash, bytes } = await hashOf(part(key), blob.size));
          if (has > before) tries = 0;
          if (isCayError(error) && error.code !== 'unavailable') throw error;
          if (tries === TRIES) throw error;
          await sleep(RETRY_MS * 2 ** tries, undefined, { signal: options.signal });
        }
      }
      const real = `sha256:${hash.digest('hex')}`;
      if (real !== blob.digest) {
        // No part of it is known to be right, so that a retry must not resume it.
        await rm(part(key), { force: true });
        throw new CayError('invalid_argument', `Layer "${blob.digest}" is not what its digest says`, {
          details: { digest: real },
        });
      }
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(part(key), path(key));
  }

  return {
    fetch,
    path,
    async remove(key) {
      await rm(path(key), { force: true });
      await rm(part(key), { force: true });
    },
    async keep(keys) {
      const kept = new Set([...keys].flatMap((key) => [path(key), part(key)]));
      for (const name of await readdir(dir)) {
        const file = join(dir, name);
        if (!kept.has(file)) await rm(file, { recursive: true, force: true });
      }
    },
  };
}

/** Appends what comes until the end. Rejects `invalid_argument` for more than there should be. */
async function receive(
  file: FileHandle,
  blob: Descriptor,
  so: { hash: Hash; bytes: number },
  options: FetchOptions,
): Promise<{ hash: Hash; bytes: number }> {
  let { hash, bytes } = so;
  const { body, offset } = await options.open(bytes);
  try {
    if (offset !== bytes) {
      if (offset !== 0) throw new CayError('unavailable', `A registry gave another part of "${blob.digest}"`);
      await file.truncate(0);
      [hash, bytes] = [createHash('sha256'), 0];
    }
    for await (const piece of body as AsyncIterable<Buffer>) {
      if (bytes + piece.length > blob.size) {
        await file.truncate(0);
        throw new CayError('invalid_argument', `Layer "${blob.digest}" is longer than ${blob.size} bytes`);
      }
      await file.appendFile(piece);
      hash.update(piece);
      bytes += piece.length;
      options.onBytes(bytes);
    }
    if (bytes < blob.size) throw new CayError('unavailable', `The fetch of layer "${blob.digest}" broke off`);
    return { hash, bytes };
  } finally {
    body.destroy();
  }
}

/** Of what an earlier fetch has left. More than there should be is nothing. */
async function hashOf(path: string, most: number): Promise<{ hash: Hash; bytes: number }> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    hash.update(piece);
    bytes += piece.length;
  }
  return bytes > most ? { hash: createHash('sha256'), bytes: 0 } : { hash, bytes };
}

function full({ digest }: Descriptor): CayError {
  return new CayError('resource_exhausted', `Cannot fetch layer "${digest}": no space is left`);
}
