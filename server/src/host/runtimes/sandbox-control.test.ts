import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { callSandbox } from './sandbox-control.ts';

let directory: string;
let path: string;
let server: Server;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cay-control-'));
  path = join(directory, 'control.sock');
});
afterEach(async () => {
  server?.close();
  await rm(directory, { recursive: true, force: true });
});

/** A sandbox that answers the first request like this. */
async function sandbox(answer: (socket: Socket, request: string) => void): Promise<void> {
  server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (chunk) => answer(socket, chunk.toString()));
  });
  server.listen(path);
  await once(server, 'listening');
}

describe('a call to a sandbox', () => {
  it('says the method, and is done when the sandbox says so, however the answer is cut', async () => {
    let asked = '';
    await sandbox((socket, request) => {
      asked = request;
      socket.write('{"success":tr');
      setTimeout(() => socket.write('ue,"err":"","result":{}}'), 10);
    });
    await callSandbox(path, 'containerManager.Pause', 5_000);
    expect(JSON.parse(asked)).toEqual({ method: 'containerManager.Pause', arg: {} });
  });

  it('rejects with the words of the sandbox', async () => {
    await sandbox((socket) => socket.write('{"success":false,"err":"no such method"}'));
    await expect(callSandbox(path, 'x', 5_000)).rejects.toThrow('no such method');
  });

  it('rejects when the sandbox hangs up, is not there, or says what has no meaning', async () => {
    await sandbox((socket) => socket.destroy());
    await expect(callSandbox(path, 'x', 5_000)).rejects.toThrow('hung up');
    server.close();
    await expect(callSandbox(join(directory, 'nobody'), 'x', 5_000)).rejects.toThrow('ENOENT');
    path = join(directory, 'other.sock');
    await sandbox((socket) => socket.write('[]'));
    await expect(callSandbox(path, 'x', 5_000)).rejects.toThrow('x failed');
  });

  it('rejects when there is no answer in time, or one without end', async () => {
    await sandbox(() => {});
    await expect(callSandbox(path, 'x', 30)).rejects.toThrow('30 ms');
    server.close();
    path = join(directory, 'other.sock');
    await sandbox((socket) => socket.write(`"${'x'.repeat(200_000)}`));
    await expect(callSandbox(path, 'x', 5_000)).rejects.toThrow('no end');
  });
});
