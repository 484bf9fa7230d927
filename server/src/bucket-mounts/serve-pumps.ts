/** The socket that pumps dial. Each says which mount it holds, and then carries its messages. */
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isCayError } from '@cay/sdk/protocol';
import { inBackground } from '../lib/in-background.ts';
import { endOfMount } from './fuse/answers.ts';
import type { Mount, MountTable } from './mount-table.ts';
import { framesOf, serveMount } from './serve-mount.ts';

export interface Pumps {
  readonly socket: string;
  /** Lets pumps wait for the next server. */
  close(): Promise<void>;
}

/** `wants` is false for the mounts that are to end. */
export async function servePumps({
  dir,
  table,
  wants,
  onError,
}: {
  dir: string;
  table: Pick<MountTable, 'mountOf'>;
  wants(id: string): boolean;
  onError(error: unknown): void;
}): Promise<Pumps> {
  const socket = join(dir, 'buckets.sock');
  const connections = new Set<Socket>();
  let isClosed = false;

  async function serve(connection: Socket): Promise<void> {
    connection.on('error', () => {});
    connections.add(connection);
    connection.on('close', () => connections.delete(connection));
    const frames = framesOf(connection);
    const hello = await frames.next();
    const id = hello.done ? undefined : hello.value.message.toString();
    if (id === undefined || isClosed) return void connection.destroy();
    // One that is not wanted any more: an end that was interrupted.
    if (id.includes('..') || !wants(id) || !existsSync(join(dir, id, 'mount.json')))
      return void connection.end(endOfMount(), () => connection.destroy());
    let mount: Mount;
    try {
      mount = await table.mountOf(id);
    } catch (error) {
      // It dials again, and calls fail when that takes too long.
      if (!isCayError(error, 'unavailable')) onError(error);
      await sleep(500);
      return void connection.destroy();
    }
    mount.connection?.destroy();
    mount.connection = connection;
    await serveMount(connection, frames, mount.files, { turns: mount.share.turns, onError });
    if (mount.connection === connection) mount.connection = undefined;
  }

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
  return {
    socket,
    async close() {
      isClosed = true;
      await new Promise<void>((done) => {
        server.close(() => done());
        for (const connection of connections) connection.destroy();
      });
    },
  };
}
