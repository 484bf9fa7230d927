import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { SandboxId } from '@cay/sdk/protocol';
import { LEFT } from '../../bucket-mounts/left-writes.ts';
import { surveyMounts } from '../../bucket-mounts/survey.ts';
import { allBucketDirectories } from '../../host/instances/instance-mount.ts';

/** A file that a sandbox has written in a mount, and the bucket lacks. */
export interface UnwrittenFile {
  sandbox: SandboxId;
  bucket: string;
  path: string;
  sizeBytes: number;
}

/** Those below the directory of a backend, whether a server runs or not. Changes nothing. */
export async function unwrittenFiles(dir: string): Promise<UnwrittenFile[]> {
  const place = join(dir, LEFT);
  const left = (await readdir(place).catch(() => [])).map((name) => join(place, name));
  const found = await surveyMounts([...(await allBucketDirectories(dir)), ...left]);
  return found.flatMap(({ facts, unwritten }) =>
    unwritten.map(({ bucket, path, key, sizeBytes }) => ({
      sandbox: facts.sandbox,
      bucket,
      path: `${path}/${key}`,
      sizeBytes,
    })),
  );
}
