import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Two ends of one real unix socket. */
export async function socketPair(): Promise<[Socket, Socket]> {
  const directory = await mkdtemp(join(tmpdir(), 'cay-pair-'));
  const server = createServer();
  server.listen(join(directory, 's'));
  await once(server, 'listening');
  const near = connect(join(directory, 's'));
  const [far] = (await once(server, 'connection')) as [Socket];
  if (near.connecting) await once(near, 'connect');
  server.close();
  await rm(directory, { recursive: true, force: true });
  return [near, far];
}
