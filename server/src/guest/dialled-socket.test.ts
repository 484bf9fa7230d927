import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { dialledSocket, type DialledSocket } from './dialled-socket.ts';

let directory: string;
let path: string;
let taken = 0;
let socket: DialledSocket;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cay-dialled-'));
  path = join(directory, 'x.sock');
  taken = 0;
  socket = dialledSocket(path, {
    mode: 0o600,
    onConnection: (one) => {
      taken += 1;
      one.on('error', () => {});
      one.destroy();
    },
  });
});
afterEach(async () => {
  await socket.shut();
  await rm(directory, { recursive: true, force: true });
});

/** `connected`, or why not. */
function dial(): Promise<string> {
  return new Promise((resolve) => {
    const one = connect(path, () => {
      one.destroy();
      resolve('connected');
    });
    one.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'failed'));
  });
}

describe('a dialled socket', () => {
  it('refuses a client that connects too often, and accepts it again after a pause', async () => {
    await socket.open();
    const answers: string[] = [];
    for (let count = 0; count < 500; count++) answers.push(await dial());
    // Those that were still in the queue when it was closed were connected to the kernel only.
    expect(taken).toBeLessThan(30);
    expect(answers.filter((answer) => answer === 'connected').length).toBeLessThan(100);
    expect(answers).toContain('ECONNREFUSED');
    await expect.poll(dial, { timeout: 5_000, interval: 100 }).toBe('connected');
  });

  it('never delays a client that connects now and then', async () => {
    await socket.open();
    for (let count = 0; count < 12; count++) expect(await dial()).toBe('connected');
  });

  it('takes as many again after it was shut and opened, and has no name while it is shut', async () => {
    await socket.open();
    while ((await dial()) === 'connected') continue;
    await socket.shut();
    expect(await readdir(directory)).toEqual([]);
    expect(await dial()).toBe('ENOENT');
    await socket.open();
    expect(await dial()).toBe('connected');
  });

  it('keeps the order of open and shut', async () => {
    const all = [socket.open(), socket.shut(), socket.open(), socket.shut()];
    await Promise.all(all);
    expect(await readdir(directory)).toEqual([]);
  });
});
