/** The direct way to the real guest, which serves a unix socket, as in a pod. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dialNoise } from '../lib/noise/noise-stream.ts';
import { HANDSHAKE_BYTES, noiseHandshake } from '../lib/noise/noise.ts';
import { collect } from './collect.ts';
import { directConnection, type DirectConnectionOptions } from './direct-connection.ts';
import type { GuestExec } from './guest.ts';
import { guestBinary } from './guest-binary.ts';
import { connectGuest } from './guest-client.ts';
import type { GuestLink } from './guest-link.ts';
import { redialling } from './redialling-link.ts';

const HOST = '127.0.0.1';
const hello = { sandbox: 'sbx_a', incarnation: 1 };
const user = String(process.getuid?.() ?? 0);
const KEY = Buffer.alloc(32, 7);
const PROLOGUE = Buffer.from('cay-guest/1');
const noise = { host: HOST, key: KEY, prologue: PROLOGUE, timeoutMs: 5000 };

describe('the direct way to a guest', () => {
  let directory: string;
  let guest: ChildProcess;
  let port: number;
  let lastId = 0;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cay-direct-'));
    guest = spawn(guestBinary(), ['serve', socketPath()], { stdio: ['ignore', 'ignore', 'inherit'] });
    port = await freePort();
  });

  afterAll(async () => {
    const gone = once(guest, 'exit');
    const client = await connectGuest(await unix(), hello).catch(() => undefined);
    if (client) await client.shutdown(100).catch(() => {});
    guest.kill('SIGKILL');
    await gone;
    await rm(directory, { recursive: true, force: true });
  });

  const socketPath = () => join(directory, 'guest.sock');

  /** The other way, as often as it takes until the guest listens. */
  async function unix(): Promise<Socket> {
    for (;;) {
      const socket = connect(socketPath());
      const connected = await once(socket, 'connect').then(
        () => true,
        () => false,
      );
      if (connected) return socket;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  interface Linked {
    link: GuestLink;
    /** How often the other way was dialled. */
    dialled(): number;
    refused: unknown[];
  }

  async function linked(options: Partial<DirectConnectionOptions> = {}): Promise<Linked> {
    let count = 0;
    const refused: unknown[] = [];
    const way = directConnection({
      dial() {
        count++;
        return unix();
      },
      host: HOST,
      port,
      onRefused: (error) => refused.push(error),
      onReached: () => {},
      ...options,
    });
    const link = redialling({ ...hello, ...way, whyGone: async () => undefined });
    await link.ready({ timeoutMs: 10_000 });
    return { link, dialled: () => count, refused };
  }

  const request = (more: Partial<GuestExec>): GuestExec => ({
    id: `d${++lastId}`,
    env: {},
    workdir: directory,
    user,
    ...more,
  });

  async function run(link: GuestLink, shell: string): Promise<string> {
    const { stdout } = await collect(await link.guest.exec(request({ shell })), { maxBytes: 16_000_000 });
    return stdout.toString();
  }

  /** A caller who sends that and no more. Resolves with what it got when the guest has hung up. */
  async function caller(bytes: Buffer, at = port): Promise<{ socket: Socket; ended: Promise<Buffer> }> {
    const socket = connect(at, HOST);
    const got: Buffer[] = [];
    socket.on('data', (chunk) => got.push(chunk)).on('error', () => {});
    const ended = new Promise<Buffer>((resolve) => socket.once('close', () => resolve(Buffer.concat(got))));
    await once(socket, 'connect');
    socket.write(bytes);
    return { socket, ended };
  }

  it('is taken by the link, which then needs the other way no more', async () => {
    const { link, dialled, refused } = await linked();
    expect(await run(link, 'echo directly')).toBe('directly\n');
    const content = Buffer.alloc(8_000_000, 'abcdefg');
    const files = link.guest.files(user);
    await files.write(join(directory, 'big'), content);
    const read: Uint8Array[] = [];
    for await (const chunk of (await files.read(join(directory, 'big'))).data) read.push(chunk);
    expect(Buffer.concat(read).equals(content)).toBe(true);
    const long = collect(
      await link.guest.exec(request({ shell: 'for i in $(seq 50); do echo $i; sleep 0.01; done' })),
      { maxBytes: 1000 },
    );
    link.current?.close('cut');
    expect((await long).stdout.toString().split('\n')).toHaveLength(51);
    expect([dialled(), refused]).toEqual([1, []]);
    expect(await link.guest.ports.list()).not.toContainEqual(expect.objectContaining({ port }));
    link.close();
  });

  it('is opened again after a restart of the guest, and of the server', async () => {
    const { link, dialled } = await linked();
    const { boot } = (await link.ready()).hello;
    await (await link.ready()).shutdown(1000, { again: true });
    expect((await link.ready({ timeoutMs: 10_000 })).hello.boot).not.toBe(boot);
    expect(await run(link, 'echo anew')).toBe('anew\n');
    expect(dialled()).toBe(2);
    link.close();
    const next = await linked();
    expect(await run(next.link, 'echo next')).toBe('next\n');
    expect(next.dialled()).toBe(1);
    next.link.close();
  });

  it('is left when the guest does not answer any more, and taken again when it does', async () => {
    const { link } = await linked({ pingMs: 100, timeoutMs: 500 });
    const first = await link.ready();
    guest.kill('SIGSTOP');
    try {
      await first.closed;
      expect(first.connection.error?.message).toContain('the guest does not answer');
    } finally {
      guest.kill('SIGCONT');
    }
    expect((await link.ready({ timeoutMs: 20_000 })).hello.boot).toBe(first.hello.boot);
    expect(await run(link, 'echo back')).toBe('back\n');
    link.close();
  });

  it('is left alone where the port is taken or cannot be reached', async () => {
    const squatter = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\n')).listen(0);
    await once(squatter, 'listening');
    const taken = (squatter.address() as AddressInfo).port;
    for (const options of [{ port: taken }, { host: '198.51.100.1', timeoutMs: 300 }]) {
      const { link, dialled, refused } = await linked(options);
      expect(await run(link, 'echo otherwise')).toBe('otherwise\n');
      expect([dialled(), refused.length]).toEqual([1, 1]);
      link.close();
    }
    squatter.close();
  });

  it('refuses a wrong key, an earlier key and a replayed handshake, without effect on the connection', async () => {
    const client = await connectGuest(await unix(), hello);
    const at = await client.listen({ port: 0, key: Buffer.alloc(32, 1) });
    expect(await client.listen({ port: at, key: KEY })).toBe(at);
    for (const key of [Buffer.alloc(32, 1), Buffer.alloc(32, 2)]) {
      await expect(dialNoise({ ...noise, port: at, key })).rejects.toThrow(/hung up|ECONNRESET/);
    }
    await expect(dialNoise({ ...noise, port: at, prologue: Buffer.from('other') })).rejects.toThrow(
      /hung up|ECONNRESET/,
    );
    const garbage = await caller(Buffer.alloc(5000, 0x61), at);
    expect((await garbage.ended).length).toBe(0);
    // An eavesdropper can replay the first message of a client that has the key. The guest answers it, and
    // the replayer cannot go on without the key.
    const first = noiseHandshake({ initiator: true, key: KEY, prologue: PROLOGUE }).write();
    const recorded = await caller(Buffer.concat([Buffer.of(0, HANDSHAKE_BYTES), first]), at);
    await once(recorded.socket, 'data');
    recorded.socket.write(Buffer.alloc(18, 0x10));
    expect((await recorded.ended).length).toBe(2 + HANDSHAKE_BYTES);
    await client.ping();
    const direct = await connectGuest(await dialNoise({ ...noise, port: at }), hello);
    await client.closed;
    await direct.ping();
    direct.close();
  });

  it('stays open, and small, however many dial it and say nothing', async () => {
    const { link } = await linked();
    const [before, descriptors] = [await resident(guest.pid!), await open(guest.pid!)];
    const counting = collect(
      await link.guest.exec(request({ shell: 'for i in $(seq 100); do echo $i; sleep 0.01; done' })),
      {
        maxBytes: 1000,
      },
    );
    const strangers = await Promise.all(Array.from({ length: 400 }, (_, at) => caller(Buffer.alloc(at % 3))));
    expect(await open(guest.pid!)).toBeLessThan(descriptors + 50);
    expect(await run(link, 'echo still here')).toBe('still here\n');
    link.current?.close('cut');
    expect(await run(link, 'echo again')).toBe('again\n');
    expect((await counting).stdout.toString().split('\n')).toHaveLength(101);
    expect((await resident(guest.pid!)) - before).toBeLessThan(2048);
    // Those whom no other caller has pushed out are sent away in the end.
    await expect.poll(() => open(guest.pid!), { timeout: 15_000 }).toBeLessThanOrEqual(descriptors);
    for (const { socket } of strangers) socket.destroy();
    link.close();
  });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

async function open(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length;
}

async function resident(pid: number): Promise<number> {
  return Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]);
}
