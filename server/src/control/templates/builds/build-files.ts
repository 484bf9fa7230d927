/**
 * Archives that clients uploaded for builds, by the digest that the client gave. The digest is trusted within
 * its own project only. Archives are kept for later builds; the least recently used are removed when there
 * are too many.
 *
 * A client with an upload link may send as often and as slowly as it likes. So an upload counts in the quota
 * of the project from its first byte, only some run at once, and each must end before its link would have
 * expired.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { pathExists } from '../../../lib/path-exists.ts';
import { randomName } from '../../../lib/random-name.ts';
import { decompressed } from './decompressed.ts';
import type { Flight, QuotaLedger } from '../../tenants/quota-ledger.ts';
import { keptUploads, UNFINISHED } from './kept-uploads.ts';
import { inTime, uploadsUnderWay } from './uploads-under-way.ts';

export interface BuildFiles {
  has(project: string, digest: string): Promise<boolean>;
  /**
   * Stores an archive, whole or not at all. Rejects `invalid_argument` if it is too large,
   * `resource_exhausted` beyond the quota or beside too many others, `deadline_exceeded` if it takes too
   * long.
   */
  put(project: string, digest: string, data: AsyncIterable<Uint8Array>): Promise<void>;
  /** Stores a build context under its own digest. It may be compressed by gzip, and is kept uncompressed. */
  add(project: string, data: AsyncIterable<Uint8Array>): Promise<{ digest: string; bytes: number }>;
  /** Rejects `not_found`. */
  read(project: string, digest: string): Promise<AsyncIterable<Uint8Array>>;
  /** Where it is on disk. Rejects `not_found`. */
  pathOf(project: string, digest: string): Promise<string>;
}

export interface BuildFilesOptions {
  /** Default 1 GiB. */
  maxBytes?: number;
  /** All archives of one project. Default 5 GiB. */
  maxTotalBytes?: number;
  /** How long an upload may take. Default an hour, the life of a link. */
  timeoutMs?: number;
  quota?: Pick<QuotaLedger, 'counts' | 'begin'>;
}

const GIB = 1024 ** 3;
const TIMEOUT_MS = 3_600_000;
export function buildFiles(directory: string, options: BuildFilesOptions = {}): BuildFiles {
  const { maxBytes = GIB, maxTotalBytes = 5 * GIB, timeoutMs = TIMEOUT_MS, quota } = options;
  const kept = keptUploads(directory);
  const enter = uploadsUnderWay();

  function pathOf(project: string, digest: string): string {
    if (!/^[0-9a-f]{64}$/.test(digest))
      throw new CayError('invalid_argument', `"${digest.slice(0, 80)}" is not a SHA-256 digest`);
    return join(kept.directoryOf(project), digest);
  }

  async function write(
    project: string,
    path: string,
    data: AsyncIterable<Uint8Array>,
    flight: Flight | undefined,
  ): Promise<number> {
    const file = await open(path, 'wx', 0o600);
    try {
      let bytes = 0;
      for await (const chunk of data) {
        bytes += chunk.length;
        if (bytes > maxBytes)
          throw new CayError('invalid_argument', `Files for a build have at most ${maxBytes} bytes`, {
            details: { limitBytes: maxBytes },
          });
        if (flight) await admit(project, flight, chunk.length);
        await file.write(chunk);
      }
      await file.datasync();
      return bytes;
    } finally {
      await file.close();
    }
  }

  /** Older archives are removed to make room for a new one. */
  async function admit(project: string, flight: Flight, bytes: number): Promise<void> {
    for (;;) {
      try {
        return await flight.add(bytes);
      } catch (error) {
        const isQuota = isCayError(error, 'resource_exhausted') && error.details['quota'] === 'uploadBytes';
        const [oldest] = isQuota ? await kept.unused(project) : [];
        if (!oldest) throw error;
        kept.drop(project, oldest);
      }
    }
  }

  quota?.counts('uploadBytes', 'contexts', kept.bytesOf);

  return {
    has: (project, digest) => pathExists(pathOf(project, digest)),
    async put(project, digest, data) {
      const path = pathOf(project, digest);
      await store(project, digest, data, () => path);
    },
    async add(project, data) {
      const hash = createHash('sha256');
      const digest = { value: '' };
      async function* hashed() {
        for await (const part of decompressed(data)) {
          hash.update(part);
          yield part;
        }
      }
      const bytes = await store(project, `context-${randomName(8)}`, hashed(), () =>
        pathOf(project, (digest.value = hash.digest('hex'))),
      );
      return { digest: digest.value, bytes };
    },
    async read(project, digest) {
      return createReadStream(await used(project, digest), { highWaterMark: 256 * 1024 });
    },
    pathOf: used,
  };

  async function used(project: string, digest: string): Promise<string> {
    const path = pathOf(project, digest);
    const now = new Date();
    try {
      await utimes(path, now, now);
      return path;
    } catch {
      throw new CayError('not_found', `The files "${digest}" were not uploaded, or were removed`, {
        hint: 'upload them again',
      });
    }
  }

  async function store(
    project: string,
    name: string,
    data: AsyncIterable<Uint8Array>,
    place: () => string,
  ): Promise<number> {
    using _place = enter(project, name);
    using flight = quota?.begin(project, 'uploads', ['uploadBytes']);
    await mkdir(kept.directoryOf(project), { recursive: true, mode: 0o700 });
    const unfinished = join(kept.directoryOf(project), `${name}.${randomName(8)}${UNFINISHED}`);
    const deadlineMs = performance.now() + timeoutMs;
    let path: string;
    let bytes: number;
    try {
      bytes = await write(project, unfinished, inTime(data, deadlineMs, timeoutMs), flight);
      path = place();
      kept.keep(project, path, unfinished, bytes);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw error;
    }
    flight?.[Symbol.dispose]();
    await kept.trim(project, path, maxTotalBytes);
    return bytes;
  }
}
