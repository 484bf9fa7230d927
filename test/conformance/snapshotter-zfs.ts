import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { exec, MIB } from './snapshotter-world.ts';

export interface ZfsPool {
  /** Its dataset, and where that is mounted. */
  readonly name: string;
  readonly path: string;
  /** Takes away the pool, its file, and the daemon if it was started for it. */
  stop(): Promise<void>;
}

/** Both have the programs of the system that are not for everyone in their path. */
const OPTIONS = { env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin`, LC_ALL: 'C' } };
const tool = (file: string, ...args: string[]): Promise<{ stdout: string }> => exec(file, args, OPTIONS);

/**
 * A pool of ZFS in a sparse file. Where the kernel has no ZFS, a daemon of zfs-fuse is started for it.
 * Rejects with the reason where there is neither.
 */
export async function startZfsPool(): Promise<ZfsPool> {
  const stopDaemon = (await isServed()) ? async () => {} : await startDaemon();
  const dir = await mkdtemp(join(tmpdir(), 'cay-zfs-pool-'));
  const name = `caytest${process.pid}`;
  const path = join(dir, 'mount');
  const stop = async (): Promise<void> => {
    await until(async () => tool('zpool', 'destroy', '-f', name)).catch(() => {});
    await stopDaemon();
    await rm(dir, { recursive: true, force: true });
  };
  try {
    await writeFile(join(dir, 'file'), '');
    await truncate(join(dir, 'file'), 1024 * MIB);
    await mkdir(path);
    await tool('zpool', 'create', '-o', 'cachefile=none', '-m', path, name, join(dir, 'file'));
  } catch (error) {
    await stop();
    throw error;
  }
  return { name, path, stop };
}

export async function unmountZfs(path: string): Promise<void> {
  const { stdout } = await tool('zfs', 'list', '-H', '-o', 'name,mountpoint,mounted');
  const below = stdout
    .split('\n')
    .map((line) => line.split('\t'))
    .filter(([, mountpoint, mounted]) => mounted === 'yes' && `${mountpoint}/`.startsWith(`${path}/`));
  for (const [dataset] of below.reverse()) await zfs('unmount', dataset!);
}

/** Runs `zfs`, again while what it is about is busy, and resolves what it printed. */
export async function zfs(...args: string[]): Promise<string> {
  return (await until(() => tool('zfs', ...args))).stdout;
}

async function isServed(): Promise<boolean> {
  return tool('zpool', 'list').then(
    () => true,
    () => false,
  );
}

async function startDaemon(): Promise<() => Promise<void>> {
  // It goes with the tests, however they end.
  const daemon = spawn('setpriv', ['--pdeathsig', 'KILL', 'zfs-fuse', '--no-daemon', '--no-kstat-mount'], {
    ...OPTIONS,
    stdio: 'ignore',
  });
  let why: string | undefined;
  const ended = new Promise<void>((resolve) => {
    daemon.on('error', (error) => resolve(void (why = error.message)));
    daemon.on('exit', (code) => resolve(void (why ??= `zfs-fuse ended with ${code}`)));
  });
  const stop = async (): Promise<void> => {
    daemon.kill();
    await Promise.race([ended, sleep(5000)]);
    daemon.kill('SIGKILL');
    await ended;
  };
  try {
    await until(async () => {
      if (why !== undefined) throw new Error(why);
      await tool('zpool', 'list');
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}

/** The daemon needs a moment to be there, and datasets to be free. */
async function until<T>(work: () => Promise<T>): Promise<T> {
  for (let round = 0; ; round++) {
    try {
      return await work();
    } catch (error) {
      if (round === 50) throw error;
      await sleep(100);
    }
  }
}
