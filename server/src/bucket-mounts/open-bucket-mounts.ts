import { accessSync, constants, existsSync, mkdirSync, rmSync } from 'node:fs';
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { join, relative, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { inBackground } from '../lib/in-background.ts';
import { randomName } from '../lib/random-name.ts';
import { run } from '../lib/run.ts';
import type { BucketMounts, BucketOpening } from './bucket-mounts.ts';
import { endOfMount } from './fuse/answers.ts';
import { hasContents, openMountTable, type Mount } from './mount-table.ts';
import { framesOf, serveMount } from './serve-mount.ts';

export interface OpenBucketMountsOptions {
  /** Directories of mounts are below it. */
  dir: string;
  opening: BucketOpening;
  /** The program that holds mounts. */
  guestBinary: string;
  /** What is written and not in a bucket yet, of one mount. */
  mostSpooled?: number;
  /** How long calls wait while no server is there. */
  patienceSeconds?: number;
  onError(error: unknown): void;
}

const GiB = 1024 ** 3;
const DEVICE = '/dev/fuse';
const LEFT = 'bucket-writes';
const LOOK_MS = 1_000;

export async function openBucketMounts(options: OpenBucketMountsOptions): Promise<BucketMounts> {
  const { guestBinary, onError, opening, mostSpooled = 4 * GiB, patienceSeconds = 30 } = options;
  const dir = resolve(options.dir);
  const table = openMountTable({ dir, opening, mostSpooled, onError, isClosed: () => isClosed });
  const { drop, finish, mountOf, mounts } = table;
  let isClosed = false;

  const socket = join(dir, 'buckets.sock');
  const idOf = (directory: string) => relative(dir, resolve(directory));

  async function serve(connection: Socket): Promise<void> {
    connection.on('error', () => {});
    const frames = framesOf(connection);
    const hello = await frames.next();
    const id = hello.done ? undefined : hello.value.message.toString();
    if (id === undefined || isClosed) return void connection.destroy();
    // One that is not wanted any more: an end that was interrupted.
    if (id.includes('..') || !existsSync(join(dir, id, 'mount.json')))
      return void connection.end(endOfMount());
    let mount: Mount;
    try {
      mount = await mountOf(id);
    } catch (error) {
      // It dials again, and calls fail when that takes too long.
      if (!isCayError(error, 'unavailable')) onError(error);
      await sleep(500);
      return void connection.destroy();
    }
    mount.connection?.destroy();
    mount.connection = connection;
    await serveMount(connection, frames, mount.files, onError);
    if (mount.connection === connection) mount.connection = undefined;
  }

  async function listen(): Promise<Server> {
    mkdirSync(dir, { recursive: true });
    rmSync(socket, { force: true });
    const server = createServer((connection) => inBackground(serve(connection), onError));
    await new Promise<void>((made, failed) => {
      server.once('error', failed);
      // Only the server's own user may connect.
      const before = process.umask(0o177);
      server.listen(socket, () => made());
      process.umask(before);
    });
    server.on('error', onError);
    return server;
  }

  async function unmount(id: string, directory: string): Promise<void> {
    const mount = await mounts.get(id)?.catch(() => undefined);
    mount?.connection?.write(endOfMount());
    const at = join(directory, 'at');
    // Of a pump that was killed, or that has not heard it yet.
    await run('umount', ['-l', at], { timeoutMs: 10_000 }).catch(() => {});
  }

  async function remove(directory: string): Promise<void> {
    await rm(join(directory, 'mount.json'), { force: true });
    await run('umount', ['-l', join(directory, 'at')], { timeoutMs: 10_000 }).catch(() => {});
    await rm(directory, { recursive: true, force: true });
  }

  /** What sandboxes had written that ended while nobody opened buckets. */
  async function finishLeft(): Promise<void> {
    if (!opening.source || isClosed) return;
    clearInterval(lookingForLeft);
    const names = await readdir(join(dir, LEFT)).catch(() => []);
    for (const name of names) {
      const directory = join(dir, LEFT, name);
      await finish(idOf(directory), directory).catch(onError);
      if (isClosed) return;
      await drop(idOf(directory));
      await remove(directory);
    }
  }

  const server = await listen();
  const lookingForLeft = setInterval(() => inBackground(finishLeft(), onError), LOOK_MS).unref();
  const result: BucketMounts = {
    why() {
      try {
        accessSync(DEVICE, constants.R_OK | constants.W_OK);
        return undefined;
      } catch {
        return `the machine has no ${DEVICE}`;
      }
    },
    async begin(directory, facts) {
      const id = idOf(directory);
      const at = join(resolve(directory), 'at');
      await mkdir(at, { recursive: true });
      await writeFile(join(directory, 'mount.json'), JSON.stringify(facts), { mode: 0o600 });
      const mount = await mountOf(id);
      // A bucket that cannot be read is noticed now, and not by programs.
      await mount.files.opendir(1).then((handle) => mount.files.releasedir(handle));
      const access = facts.readOnly ? 'ro' : 'rw';
      try {
        await run(
          guestBinary,
          [
            'bucket-mount',
            ...['--at', at, '--socket', socket, '--id', id],
            ...['--access', access, '--patience', String(patienceSeconds)],
          ],
          { silent: true, timeoutMs: 30_000 },
        );
      } catch (error) {
        throw new CayError(
          'unavailable',
          `Cannot mount bucket "${facts.bucket}": ${(error as Error).message}`,
          {
            cause: error,
          },
        );
      }
      return at;
    },
    async end(directory) {
      const id = idOf(directory);
      if (!existsSync(join(directory, 'mount.json'))) {
        await rm(directory, { recursive: true, force: true });
        return;
      }
      await unmount(id, directory);
      if (opening.source) {
        await finish(id, directory).catch(onError);
        await drop(id);
      } else {
        // While a server starts nobody opens buckets yet.
        await drop(id);
        await mkdir(join(dir, LEFT), { recursive: true, mode: 0o700 });
        if (hasContents(directory)) await rename(directory, join(dir, LEFT, randomName(20)));
      }
      await remove(directory);
    },
    async close() {
      isClosed = true;
      clearInterval(lookingForLeft);
      await new Promise<void>((done) => {
        server.close(() => done());
        for (const mount of mounts.values())
          mount.then(
            ({ connection }) => connection?.destroy(),
            () => {},
          );
      });
      for (const id of mounts.keys()) await drop(id);
    },
  };
  return result;
}
