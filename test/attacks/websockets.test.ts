import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { onEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';

const MiB = 1024 ** 2;
const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';

/** A frame of a client, with a mask that changes nothing. */
function frame(opcode: number, payload = Buffer.alloc(0), final = true): Buffer {
  const { length } = payload;
  const head =
    length < 126
      ? [0x80 | length]
      : [0x80 | 127, 0, 0, 0, 0, ...[24, 16, 8, 0].map((shift) => (length >>> shift) & 255)];
  return Buffer.concat([Buffer.from([(final ? 0x80 : 0) | opcode, ...head, 0, 0, 0, 0]), payload]);
}

/** A WebSocket that is never read unless its owner does. */
async function open(url: string, path: string, key: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  await once(socket, 'connect');
  const lines = [
    `GET ${path} HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${key}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
  ];
  socket.write([...lines, 'Sec-WebSocket-Version: 13', `Sec-WebSocket-Key: ${KEY}`, '', ''].join('\r\n'));
  const [answer] = (await once(socket, 'data')) as [Buffer];
  expect(answer.toString('latin1')).toMatch(/^HTTP\/1\.1 101/);
  socket.pause();
  return socket;
}

/** Writes until all is taken or nothing more is taken for a while; what is left over. */
async function leftOver(socket: Socket, chunk: Buffer, times: number): Promise<number> {
  for (let at = 0; at < times; at++) {
    if (socket.destroyed) return 0;
    if (
      !socket.write(chunk) &&
      !(await Promise.race([once(socket, 'drain').then(() => true), sleep(700, false)]))
    ) {
      return (times - at - 1) * chunk.length + socket.writableLength;
    }
  }
  return socket.writableLength;
}

/** Listens, and never reads what its visitors send. */
const DEAF = `
import socket, time
server = socket.socket()
server.bind(('127.0.0.1', 5000))
server.listen()
open('/tmp/deaf', 'w')
held = server.accept()
time.sleep(600)
`;

onEachPlatform('a client that floods a WebSocket', (platform) => {
  let target: Target;
  let id: string;
  beforeAll(async () => {
    target = await platform.start();
    ({ id } = await target.alice.create());
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  it('with messages that have no bytes does not fill the server', async () => {
    await target.alice.call('POST', `/v1/sandboxes/${id}/commands`, {
      body: { argv: ['python3', '-c', DEAF] },
    });
    await target.alice.exec(id, ['sh', '-c', 'until [ -e /tmp/deaf ]; do sleep 0.1; done']);
    const socket = await open(target.url, `/v1/sandboxes/${id}/ports/5000/tcp`, target.alice.key);
    // Until nothing more fits into the buffers on the way.
    expect(await leftOver(socket, frame(2, Buffer.alloc(900 * 1024)), 100)).toBeGreaterThan(0);
    const before = target.rssBytes();
    // 5 million messages, 30 MB.
    const empty = Buffer.concat(Array.from({ length: 10_000 }, () => frame(2)));
    expect(await leftOver(socket, empty, 500)).toBeGreaterThan(15 * MiB);
    expect(target.rssBytes() - before).toBeLessThan(100 * MiB);
    await target.requireAlive();
    socket.destroy();
  });

  it('with a message of endless tiny fragments is hung up on', async () => {
    const socket = await open(target.url, `/v1/sandboxes/${id}/exec`, target.alice.key);
    socket.resume();
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const part = frame(0, Buffer.from('x'), false);
    socket.write(
      Buffer.concat([frame(1, Buffer.from('{'), false), ...Array.from({ length: 100_000 }, () => part)]),
    );
    await closed;
  });

  it('with pings, and reads nothing, does not fill the server', async () => {
    const socket = await open(target.url, `/v1/sandboxes/${id}/exec`, target.alice.key);
    const pings = Buffer.concat(Array.from({ length: 5_000 }, () => frame(9, Buffer.from('0123456789'))));
    await leftOver(socket, pings, 20);
    const before = target.rssBytes();
    // 2 million pings: all of them answered would be hundreds of megabytes.
    await leftOver(socket, pings, 400);
    expect(target.rssBytes() - before).toBeLessThan(100 * MiB);
    await target.requireAlive();
    socket.destroy();
  });
});
