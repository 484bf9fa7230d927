import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { HANDSHAKE_BYTES, noiseHandshake, type NoiseChannel } from './noise.ts';
import { dialNoise, noiseStream } from './noise-stream.ts';

const shared = { key: Buffer.alloc(32, 7), prologue: Buffer.from('test') };
const MESSAGE_BYTES = 2 + HANDSHAKE_BYTES;

describe('dialNoise', () => {
  let server: Server | undefined;
  afterEach(() => {
    server?.close();
  });

  async function serve(onSocket: (socket: Socket) => void): Promise<{ host: string; port: number }> {
    server = createServer((socket) => onSocket(socket.on('error', () => {}))).listen(0, '127.0.0.1');
    await once(server, 'listening');
    return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
  }

  /** Both ends of a connection: what was dialled, and the socket and the channel of who was. */
  async function connected(): Promise<{ near: Duplex; socket: Socket; channel: NoiseChannel }> {
    const { promise, resolve } = Promise.withResolvers<{ socket: Socket; channel: NoiseChannel }>();
    const at = await serve((socket) => {
      const handshake = noiseHandshake({ initiator: false, ...shared });
      socket.once('readable', () => {
        handshake.read((socket.read(MESSAGE_BYTES) as Buffer).subarray(2));
        socket.write(Buffer.concat([Buffer.of(0, HANDSHAKE_BYTES), handshake.write()]));
        socket.once('readable', () => {
          const channel = handshake.split();
          expect(channel.open((socket.read(18) as Buffer).subarray(2)).length).toBe(0);
          resolve({ socket, channel });
        });
      });
    });
    const near = await dialNoise({ ...at, ...shared, timeoutMs: 5000 });
    return { near, ...(await promise) };
  }

  it('carries bytes both ways, however they are cut', async () => {
    const { near, socket, channel } = await connected();
    const far = noiseStream(socket, channel);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 10 }),
        fc.nat(200_000),
        async (small, large) => {
          const chunks = [...small, Buffer.alloc(large, 'x')].filter(({ length }) => length > 0);
          const sent = Buffer.concat(chunks);
          for (const [from, to] of [
            [near, far],
            [far, near],
          ] as const) {
            for (const chunk of chunks) from.write(chunk);
            const got: Buffer[] = [];
            for (let length = 0; length < sent.length; length += got.at(-1)!.length) {
              const chunk = to.read() as Buffer | null;
              if (chunk) got.push(chunk);
              else {
                await once(to, 'readable');
                got.push(Buffer.alloc(0));
              }
            }
            expect(Buffer.concat(got).equals(sent)).toBe(true);
          }
        },
      ),
      { numRuns: 30 },
    );
    far.end();
    near.resume();
    await once(near, 'close');
  });

  it.each([
    ['was not sealed', () => Buffer.from('\0\x20it is only so long as it should be'.slice(0, 34))],
    ['is too short to be sealed', () => Buffer.of(0, 3, 1, 2, 3)],
    ['is empty', (channel: NoiseChannel) => Buffer.concat([Buffer.of(0, 16), channel.seal(Buffer.alloc(0))])],
  ])('ends a connection on which something %s', async (_title, message) => {
    const { near, socket, channel } = await connected();
    socket.write(message(channel));
    near.resume();
    const [error] = (await once(near, 'error')) as [Error];
    expect(error.message).toBe('What arrived was not sealed by the other end');
    socket.resume();
    await once(socket, 'close');
  });

  it('buffers little for a reader that does not read', async () => {
    const { near, socket, channel } = await connected();
    const far = noiseStream(socket, channel);
    let written = 0;
    const fill = () => {
      while (written < 64_000_000 && far.write(Buffer.alloc(60_000))) written += 60_000;
    };
    far.on('drain', fill).on('error', () => {});
    fill();
    near.once('readable', () => {});
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(near.readableLength).toBeLessThan(400_000);
    expect(written).toBeLessThan(64_000_000);
    near.destroy();
  });

  it.each<[string, (socket: Socket) => void, RegExp, number?]>([
    ['says nothing', () => {}, /not answered within 200 ms/, 200],
    ['hangs up', (socket) => socket.destroy(), /hung up|ECONNRESET/],
    [
      'speaks something else',
      (socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'),
      /does not have the key/,
    ],
    [
      'answers with nonsense',
      (socket) => socket.write(Buffer.concat([Buffer.of(0, HANDSHAKE_BYTES), Buffer.alloc(48, 9)])),
      /does not have the key/,
    ],
  ])('gives up on one who %s', async (_title, answer, message, timeoutMs = 10_000) => {
    const closed = Promise.withResolvers<void>();
    const at = await serve((socket) => {
      socket.resume().once('close', () => closed.resolve());
      answer(socket);
    });
    await expect(dialNoise({ ...at, ...shared, timeoutMs })).rejects.toThrow(message);
    await closed.promise;
  });

  it('stops when its signal is aborted', async () => {
    const at = await serve((socket) => socket.resume());
    const signal = AbortSignal.timeout(20);
    await expect(dialNoise({ ...at, ...shared, timeoutMs: 5000, signal })).rejects.toThrow('aborted');
    await expect(dialNoise({ ...at, ...shared, timeoutMs: 5000, signal })).rejects.toThrow('aborted');
  });
});
