import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { WebSocketServer } from 'ws';
import { afterEach, describe, expect, it } from 'vitest';
import { httpFetch } from './http-fetch.ts';
import { ThinWebSocket } from './web-socket.ts';
import { decodeFrames, encodeFrame } from './web-socket-frame.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

async function listening(made: Server): Promise<number> {
  server = made;
  await new Promise<void>((resolve) => made.listen(0, '127.0.0.1', resolve));
  return (made.address() as AddressInfo).port;
}

/** What a server would send: the same without a mask. */
function unmasked(frame: Buffer): Buffer {
  const extra = (frame[1]! & 0x7f) < 126 ? 0 : (frame[1]! & 0x7f) === 126 ? 2 : 8;
  const at = 2 + extra;
  const plain = Buffer.from(frame.subarray(at + 4));
  for (let index = 0; index < plain.length; index++) plain[index]! ^= frame[at + (index & 3)]!;
  const head = Buffer.from(frame.subarray(0, at));
  head[1]! &= 0x7f;
  return Buffer.concat([head, plain]);
}

describe('WebSocket frames', () => {
  it('come back whole however they are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }),
        fc.constantFrom(0, 70_000),
        fc.nat(50),
        (payloads, padding, cut) => {
          const sent = payloads.map((payload) => Buffer.concat([payload, Buffer.alloc(padding)]));
          const stream = Buffer.concat(sent.map((payload) => unmasked(encodeFrame(2, payload))));
          const first = stream.subarray(0, Math.min(cut, stream.length));
          const got: Buffer[] = [];
          let rest: Buffer = first;
          for (const step of decodeFrames(first)) ({ rest } = (got.push(step.frame.payload), step));
          for (const step of decodeFrames(Buffer.concat([rest, stream.subarray(first.length)])))
            got.push(step.frame.payload);
          expect(Buffer.concat(got).equals(Buffer.concat(sent))).toBe(true);
          expect(got).toHaveLength(sent.length);
        },
      ),
      { numRuns: 50 },
    );
  });

  it('are refused when fragmented, masked, unknown or too long', () => {
    const tooLong = Buffer.alloc(10);
    tooLong.set([0x82, 127]);
    tooLong.writeBigUInt64BE(2n ** 40n, 2);
    for (const bytes of [
      Buffer.from([0x02, 0]),
      Buffer.from([0x82, 0x81, 1, 1, 1, 1, 1]),
      Buffer.from([0x83, 0]),
      Buffer.from([0xc2, 0]),
      tooLong,
    ]) {
      expect(() => [...decodeFrames(bytes)]).toThrow('WebSocket frame');
    }
  });
});

describe('ThinWebSocket', () => {
  it('speaks with a server that others wrote: text, binary of any size, ping and close', async () => {
    const port = await listening(createServer());
    const sockets = new WebSocketServer({ server: server! });
    sockets.on('connection', (socket) => {
      socket.ping();
      socket.on('message', (data, binary) => socket.send(data, { binary }));
      socket.on('pong', () => socket.send('pong'));
    });
    const socket = new ThinWebSocket(`ws://127.0.0.1:${port}/`, ['a', 'b']);
    const got: unknown[] = [];
    socket.addEventListener('message', ({ data }: { data: unknown }) => got.push(data));
    await new Promise<void>((resolve) => socket.addEventListener('open', () => resolve()));
    const big = Buffer.alloc(300_000, 'x');
    socket.send('text');
    socket.send(big);
    await expect.poll(() => got.length).toBe(3);
    expect(got).toContain('text');
    expect(got).toContain('pong');
    expect(Buffer.from(got.find((data) => data instanceof ArrayBuffer)!).equals(big)).toBe(true);
    const closed = new Promise<{ code: number }>((resolve) =>
      socket.addEventListener('close', resolve as never),
    );
    for (const client of sockets.clients) client.close(4404, 'not_found');
    expect(await closed).toMatchObject({ code: 4404, reason: 'not_found' });
  });

  it('hands out nothing while it is paused, and all of it afterwards', async () => {
    const port = await listening(createServer());
    new WebSocketServer({ server: server! }).on('connection', (socket) => {
      for (let index = 0; index < 100; index++) socket.send(String(index));
    });
    const socket = new ThinWebSocket(`ws://127.0.0.1:${port}/`, ['a']);
    const got: unknown[] = [];
    const first = new Promise<void>((resolve) => {
      socket.addEventListener('message', ({ data }: { data: unknown }) => {
        got.push(data);
        if (got.length === 1) socket.pause();
        resolve();
      });
    });
    await first;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(got).toEqual(['0']);
    socket.resume();
    await expect.poll(() => got.length).toBe(100);
    expect(got).toEqual(Array.from({ length: 100 }, (_, index) => String(index)));
    socket.close();
  });

  it('fails where there is no WebSocket', async () => {
    const port = await listening(createServer((_, response) => response.writeHead(404).end()));
    const socket = new ThinWebSocket(`ws://127.0.0.1:${port}/`, ['a']);
    await new Promise<void>((resolve) => socket.addEventListener('error', () => resolve()));
    expect(socket.readyState).toBe(3);
  });
});

describe('httpFetch()', () => {
  it('sends text and streams, and reads answers whole or in pieces', async () => {
    const port = await listening(
      createServer((request, response) => {
        response.setHeader('x-length', request.headers['content-length'] ?? 'chunked');
        request.pipe(response);
      }),
    );
    const url = `http://127.0.0.1:${port}/`;
    expect(await (await httpFetch(url, { method: 'POST', body: '{"a":1}' })).json()).toEqual({ a: 1 });
    const body = ReadableStream.from([
      Buffer.alloc(100_000, 'a'),
      Buffer.from('b'),
    ]) as ReadableStream<Uint8Array>;
    const answer = await httpFetch(url, { method: 'PUT', body });
    expect((await answer.arrayBuffer()).byteLength).toBe(100_001);
    const reader = (await httpFetch(url, { method: 'POST', body: 'piece' })).body!.getReader();
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('piece');
    await reader.cancel();
  });

  it('rejects with the reason as cause', async () => {
    const port = await listening(createServer());
    server!.close();
    await expect(httpFetch(`http://127.0.0.1:${port}/`)).rejects.toMatchObject({
      cause: { code: 'ECONNREFUSED' },
    });
  });
});
