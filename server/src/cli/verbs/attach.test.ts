/** `cay attach` beside a server that breaks the protocol: one that is hostile, or something else than Cay. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { newId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';

const MAIN = join(import.meta.dirname, '../../main.ts');
const SANDBOX = newId('sbx');
const COMMAND = { id: newId('cmd'), pid: 7, pty: false, keptFrom: 0 };
const MiB = 1024 ** 2;

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

describe('cay attach, beside a server that breaks the protocol', () => {
  let server: Server;
  let child: ChildProcess | undefined;
  afterEach(() => {
    child?.kill('SIGKILL');
    server.closeAllConnections();
    server.close();
  });

  /** Answers as a server does until the stream of the command begins. */
  async function attach(stream: (socket: WebSocket, raw: Socket) => void): Promise<ChildProcess> {
    const sockets = new WebSocketServer({ noServer: true });
    server = createServer((request, response) => {
      response.setHeader('content-type', 'application/json');
      const isCommand = request.url!.includes('/commands');
      response.end(JSON.stringify(isCommand ? COMMAND : { id: SANDBOX, name: 'box', workdir: '/' }));
    });
    server.on('upgrade', (request, raw: Socket, head) =>
      sockets.handleUpgrade(request, raw, head, (socket) => {
        socket.on('error', () => {});
        socket.once('message', () => stream(socket, raw));
      }),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    child = spawn(process.execPath, [MAIN, 'attach', 'box', COMMAND.id], {
      env: { ...process.env, CAY_URL: url, CAY_API_KEY: 'cay_test', NO_COLOR: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return child;
  }

  async function ended(of: ChildProcess): Promise<Ended> {
    let stdout = '';
    let stderr = '';
    of.stdout!.on('data', (chunk: Buffer) => (stdout += String(chunk)));
    of.stderr!.on('data', (chunk: Buffer) => (stderr += String(chunk)));
    const [code] = (await once(of, 'close')) as [number | null];
    return { code, stdout, stderr };
  }

  const started = (socket: WebSocket) =>
    socket.send(JSON.stringify({ type: 'started', id: COMMAND.id, pid: 7, existing: true }));

  it.each<[string, (socket: WebSocket) => void]>([
    ['begins with what is no JSON', (socket) => socket.send('<html>')],
    ['begins with bytes', (socket) => socket.send(Buffer.from([1, 2, 3]))],
    ['begins with null', (socket) => socket.send('null')],
    ['goes on with what is no JSON', (socket) => (started(socket), socket.send('{"type":"en'))],
    ['goes on with a list', (socket) => (started(socket), socket.send('[]'))],
    ['ends without an end', (socket) => (started(socket), socket.send('{"type":"end"}'))],
    [
      'ends in a way that there is not',
      (socket) => (started(socket), socket.send('{"type":"end","end":{"kind":"melted"}}')),
    ],
    [
      'leaves out an endless number of bytes',
      (socket) => (started(socket), socket.send('{"type":"gap","bytes":"1e999"}')),
    ],
    ['fails without an error', (socket) => (started(socket), socket.send('{"type":"error"}'))],
  ])('fails in words when it %s', async (_, stream) => {
    const { code, stderr } = await ended(await attach(stream));
    expect(stderr).toMatch(/^error: The server .*\nhint: /);
    expect(stderr).not.toMatch(/\n +at /);
    expect(code).toBe(125);
  });

  it.each<[string, (socket: WebSocket, raw: Socket) => void]>([
    ['a message of 64 MiB', (socket) => socket.send(Buffer.alloc(64 * MiB, 1))],
    ['a masked frame', (_, raw) => raw.write(Buffer.from([0x82, 0x81, 0, 0, 0, 0, 1]))],
    ['a reserved opcode', (_, raw) => raw.write(Buffer.from([0x83, 0x00]))],
    ['a fragment of nothing', (_, raw) => raw.write(Buffer.from([0x80, 0x00]))],
  ])('holds %s for a lost connection', async (_, stream) => {
    let connections = 0;
    const end = ended(
      await attach((socket, raw) => {
        started(socket);
        connections++;
        if (connections === 1) stream(socket, raw);
        else socket.send(JSON.stringify({ type: 'end', end: { kind: 'exited', exitCode: 3 } }));
      }),
    );
    const { code, stderr } = await end;
    expect(stderr).toMatch(/^lost the connection to command .*\nconnected again\n$/);
    expect([code, connections]).toEqual([3, 2]);
  });
});
