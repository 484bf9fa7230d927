import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newId } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { withTimeout } from '../lib/timeout.ts';
import type { BucketMounts } from './bucket-mounts.ts';
import { PROBE_BUCKET, PROBE_FILE, PROBE_TEXT } from './probe-bucket.ts';

const TRY_MS = 10_000;

/** Mounts a bucket of memory, reads and writes in it, and ends it. Resolves why that did not work, if so. */
export async function probeMount(
  mounts: Pick<BucketMounts, 'begin' | 'end'>,
  directory: string,
): Promise<string | undefined> {
  const facts = {
    sandbox: newId('sbx'),
    bucket: PROBE_BUCKET,
    path: '/',
    readOnly: false,
    owner: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
  };
  const work = async () => {
    const at = await mounts.begin(directory, facts);
    if ((await readFile(join(at, PROBE_FILE), 'utf8')) !== PROBE_TEXT) return 'a file has another content';
    await writeFile(join(at, 'written'), PROBE_TEXT);
    return (await readFile(join(at, 'written'), 'utf8')) === PROBE_TEXT
      ? undefined
      : 'what was written is gone';
  };
  try {
    // One that an earlier server has left.
    await mounts.end(directory);
    return await withTimeout(work(), TRY_MS, () => new Error(`It did not answer within ${TRY_MS / 1000} s`));
  } catch (error) {
    return systemReason(error);
  } finally {
    await mounts.end(directory).catch(() => {});
  }
}
