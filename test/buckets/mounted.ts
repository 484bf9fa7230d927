/** The same bucket through a mount: one large file, and many small ones. Needs root and FUSE. */
import { execFile } from 'node:child_process';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { newId } from '@cay/sdk/protocol';
import { openBucketMounts } from '../../server/src/bucket-mounts/open-bucket-mounts.ts';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import type { Bucket } from '../../server/src/s3/bucket.ts';

const run = promisify(execFile);
const MiB = 1024 * 1024;
const SMALL = 1_000;

export type Timed = (what: string, bytes: number, work: () => Promise<unknown>) => Promise<void>;

/** A directory whose files are the objects of the bucket below `mounted/`. */
export async function mountedAt(bucket: Bucket, work: (directory: string) => Promise<void>): Promise<void> {
  const dir = await mkdtemp('/tmp/cay-mounted-');
  const bounds = { project: 'p', requireMount() {}, requireBytes() {} };
  const onError = (error: unknown) => console.error(error);
  const mounts = await openBucketMounts({
    dir,
    directories: async () => [join(dir, 'mount')],
    opening: {
      source: {
        // What is closed at the end of the mount is not this bucket.
        open: async () => ({ bucket: { ...bucket, close() {} }, readOnly: false, bounds }),
        failed: (_, { error }) => onError(error),
      },
    },
    guestBinary: guestBinary(),
    mostSpooled: 64 * 1024 * MiB,
    onError,
  });
  try {
    const facts = { sandbox: newId('sbx'), bucket: 'b', prefix: 'mounted', path: '/mnt', readOnly: false };
    await work(await mounts.begin(join(dir, 'mount'), { ...facts, owner: { uid: 0, gid: 0 } }));
  } finally {
    await mounts.end(join(dir, 'mount'));
    await mounts.close();
    await rm(dir, { recursive: true });
  }
}

export async function mounted(bucket: Bucket, bytes: number, source: string, timed: Timed): Promise<void> {
  await mountedAt(bucket, async (at) => {
    const [large, copy] = [join(at, 'large'), `${source}.copy`];
    await timed(`mount, write ${bytes / MiB} MiB and close`, bytes, () =>
      pipeline(createReadStream(source, { highWaterMark: MiB }), createWriteStream(large)),
    );
    await run('sh', ['-c', 'echo 3 > /proc/sys/vm/drop_caches']);
    await timed(`mount, read ${bytes / MiB} MiB`, bytes, () =>
      pipeline(createReadStream(large, { highWaterMark: MiB }), createWriteStream(copy)),
    );
    await run('cmp', [source, copy]);
    await rm(copy);
    const names = Array.from({ length: SMALL }, (_, index) => join(at, 'small', String(index)));
    await mkdir(join(at, 'small'));
    await timed(`mount, write ${SMALL} files of 1 KiB, one after the other`, 0, async () => {
      for (const name of names) await writeFile(name, Buffer.alloc(1024));
    });
    await timed(`mount, list ${SMALL} files`, 0, () => readdir(join(at, 'small')));
    await timed(`mount, read ${SMALL} files, one after the other`, 0, () =>
      run('sh', ['-c', `cat ${join(at, 'small')}/* > /dev/null`]),
    );
    await rm(large);
    await timed(`mount, remove ${SMALL} files`, 0, () => rm(join(at, 'small'), { recursive: true }));
  });
}
