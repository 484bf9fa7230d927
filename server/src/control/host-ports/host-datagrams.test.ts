import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { DatagramReader, frameDatagram } from '../../lib/datagram-frames.ts';
import { listenForDatagrams } from './host-datagrams.ts';
import type { ConnectInside, HostListener } from './host-listener.ts';
import { freePort } from '../../../../test/support/free-ports.ts';

const opened: (() => void)[] = [];
afterEach(() => opened.splice(0).forEach((close) => close()));

/** A guest whose program answers each datagram with its length, a colon and the number of its socket. */
function inside({ connects = async () => {} } = {}) {
  const state = { open: 0, connections: 0, got: [] as string[] };
  const connect: ConnectInside = async (signal) => {
    const number = ++state.connections;
    await connects();
    signal.throwIfAborted();
    state.open++;
    const reader = new DatagramReader();
    const answers: Buffer[] = [];
    let wake = () => {};
    let over = false;
    return {
      readable: (async function* () {
        for (;;) {
          while (answers.length > 0) yield answers.shift()!;
          if (over) return;
          await new Promise<void>((resolve) => (wake = resolve));
        }
      })(),
      async write(bytes) {
        for (const datagram of reader.push(Buffer.from(bytes))) {
          state.got.push(datagram.toString());
          answers.push(frameDatagram(Buffer.from(`${datagram.length}:${number}`)));
        }
        wake();
      },
      async end() {},
      async [Symbol.asyncDispose]() {
        over = true;
        wake();
      },
      [Symbol.dispose]: () => void state.open--,
    };
  };
  return { state, connect };
}

async function listen(connect: ConnectInside): Promise<HostListener> {
  const listener = await listenForDatagrams(
    { sandbox: newId('sbx'), address: '127.0.0.1', hostPort: await freePort() },
    connect,
  );
  opened.push(() => listener.close());
  return listener;
}

async function client(
  port: number,
): Promise<{ socket: Socket; ask(bytes: Buffer | string): Promise<string> }> {
  const socket = createSocket('udp4');
  opened.push(() => socket.close());
  socket.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  return {
    socket,
    async ask(bytes) {
      socket.send(bytes);
      return String(((await once(socket, 'message', { signal: AbortSignal.timeout(5000) })) as [Buffer])[0]);
    },
  };
}

describe('datagrams to a port of the machine', () => {
  it('go to a socket inside for each client, and the answers come back to it', async () => {
    const { state, connect } = inside();
    const { hostPort, close } = await listen(connect);
    const [one, two] = [await client(hostPort), await client(hostPort)];
    expect(await one.ask('abc')).toBe('3:1');
    expect(await two.ask(Buffer.alloc(16_384))).toBe('16384:2');
    expect(await one.ask('')).toBe('0:1');
    expect(state).toMatchObject({ open: 2, connections: 2 });
    close();
    opened.shift();
    await vi.waitFor(() => expect(state.open).toBe(0));
  });

  it('that are too long are lost, and those before the sandbox is awake wait, within bounds', async () => {
    const woken = Promise.withResolvers<void>();
    const { state, connect } = inside({ connects: () => woken.promise });
    const { hostPort } = await listen(connect);
    const { socket, ask } = await client(hostPort);
    socket.send(Buffer.alloc(20_000));
    for (let n = 0; n < 20; n++) socket.send(`${n}`.padEnd(8000));
    await sleep(200);
    expect(state.got).toEqual([]);
    woken.resolve();
    await vi.waitFor(() => expect(state.got).toHaveLength(8));
    expect(state.got.map((one) => Number(one))).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(await ask('now')).toMatch(/:1$/);
  });

  it('of more clients than there may be end the oldest flow', { timeout: 30_000 }, async () => {
    const { state, connect } = inside();
    const { hostPort } = await listen(connect);
    const first = await client(hostPort);
    expect(await first.ask('x')).toBe('1:1');
    // As many as may begin at once, and some more.
    for (let n = 0; n < 300; n++) {
      const socket = createSocket('udp4');
      await new Promise((done) => socket.send('x', hostPort, '127.0.0.1', done));
      socket.close();
      if (n > 200) await sleep(12);
    }
    await vi.waitFor(() => expect(state.open).toBe(256));
    expect(state.connections).toBeGreaterThan(256);
    // It was the one that was idle for longest, and begins anew.
    expect(await first.ask('x')).not.toBe('1:1');
  });

  it('to a sandbox that cannot be reached are lost, and the next one tries again', async () => {
    let works = false;
    const { connect } = inside();
    const { hostPort } = await listen((signal) =>
      works ? connect(signal) : Promise.reject(new Error('it is stopped')),
    );
    const { socket, ask } = await client(hostPort);
    socket.send('lost');
    await sleep(100);
    works = true;
    expect(await ask('here')).toBe('4:1');
  });

  it('a port that is taken is a conflict', async () => {
    const { connect } = inside();
    const { hostPort } = await listen(connect);
    await expect(
      listenForDatagrams({ sandbox: newId('sbx'), address: '127.0.0.1', hostPort }, connect),
    ).rejects.toMatchObject({ code: 'conflict' });
  });
});
