import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { tmpdir } from 'node:os';
import { BlockCache } from '../block-cache.ts';
import { BucketFiles } from '../bucket-files.ts';
import type { BucketFilesOptions } from '../file-tree.ts';
import { memoryBucket, type MemoryBucket } from './memory-bucket.ts';

export interface TestFiles extends AsyncDisposable {
  files: BucketFiles;
  readonly bucket: MemoryBucket;
  readonly dir: string;
  /** What the bucket did not get, as it was reported. */
  readonly failures: { key: string; error: unknown; lost: boolean }[];
  /** As after `kill -9`: another server finds what is on disk. */
  restart(): Promise<BucketFiles>;
}

/** The files of a mount on a bucket in memory. */
export async function openTestFiles(options: Partial<BucketFilesOptions> = {}): Promise<TestFiles> {
  const dir = mkdtempSync(join(tmpdir(), 'cay-bucket-files-'));
  const bucket = memoryBucket();
  const failures: TestFiles['failures'] = [];
  const old: BucketFiles[] = [];
  const open = () =>
    new BucketFiles({
      bucket,
      prefix: '',
      readOnly: false,
      owner: { uid: 1000, gid: 1000 },
      journal: join(dir, 'nodes'),
      spoolDir: join(dir, 'spool'),
      mostSpooled: 64 * 1024 * 1024,
      leastFree: 0,
      cache: new BlockCache({ bytes: 32 * 1024 * 1024, loads: 8 }),
      id: 'mount',
      project: 'project',
      onFailed: (key, error, lost) => void failures.push({ key, error, lost }),
      ...options,
    });
  const found: TestFiles = {
    files: open(),
    bucket,
    dir,
    failures,
    async restart() {
      // The old one is not closed: nothing that a server does at its end has happened.
      old.push(found.files);
      found.files = open();
      await found.files.spools.recover();
      return found.files;
    },
    async [Symbol.asyncDispose]() {
      for (const one of [...old, found.files]) await one.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
  return found;
}
