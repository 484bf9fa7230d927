/** A disk of its own for an installation, small enough to be filled: ext4 in a file. */
import { execFile } from 'node:child_process';
import { mkdir, open, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface SmallDisk {
  /** Leaves no byte. */
  fill(): Promise<void>;
  empty(): Promise<void>;
  destroy(): Promise<void>;
}

const run = promisify(execFile);

export async function openSmallDisk(path: string, bytes: number): Promise<SmallDisk> {
  const file = `${path}.ext4`;
  const ballast = join(path, 'ballast');
  await mkdir(path, { recursive: true });
  await run('truncate', ['-s', String(bytes), file]);
  await run('mkfs.ext4', ['-q', '-m', '0', file]);
  await run('mount', ['-o', 'loop', file, path]);

  return {
    async fill() {
      const { bsize, bfree } = await statfs(path);
      await run('fallocate', ['-l', String(bsize * bfree), ballast]).catch(() => {});
      // What the estimate has left.
      const handle = await open(ballast, 'a');
      const block = Buffer.alloc(4096);
      try {
        for (;;) await handle.write(block);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      } finally {
        await handle.close();
      }
    },
    empty: () => rm(ballast, { force: true }),
    async destroy() {
      await run('umount', [path]);
      await rm(file, { force: true });
    },
  };
}
