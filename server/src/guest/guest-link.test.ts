import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { collect } from './collect.ts';
import type { GuestExec } from './guest.ts';
import { listenForGuest, type GuestListener, type ListenOptions } from './listen-for-guest.ts';
import { logGuest, type LogGuestOptions } from './testing/log-guest.ts';
import { FRAME } from './frame.ts';
import { BOOT, ScriptedGuest } from './testing/scripted-guest.ts';

const request: GuestExec = { id: 'log', argv: ['log'], env: {}, workdir: '/', user: 'root' };
/** Bytes that tell where they stand. */
const output = Buffer.from(Uint8Array.from({ length: 3_000_000 }, (_, i) => (i * 31 + (i >> 8) * 7) & 0xff));

let directory: string;
let path: string;
let listener: GuestListener | undefined;
let sockets: Socket[] = [];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cay-link-'));
  path = join(directory, 'guest.sock');
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await listener?.close();
  listener = undefined;
  await rm(directory, { recursive: true, force: true });
});

async function listen(options: Partial<ListenOptions> = {}): Promise<GuestListener> {
  return (listener = await listenForGuest(path, {
    hello: () => ({ sandbox: 'sbx_a', incarnation: 1 }),
    ...options,
  }));
}

async function dial(options: Partial<LogGuestOptions> = {}): Promise<Socket> {
  const socket = connect(path);
  sockets.push(socket);
  await once(socket, 'connect');
  logGuest(socket, { output, pieceBytes: () => 30_000, ...options });
  return socket;
}

describe('a link', () => {
  it('listens with the mode it was given, replaces an old socket, and leaves nothing behind', async () => {
    await writeFile(path, '');
    await chmod(path, 0o777);
    const link = await listen({ mode: 0o620 });
    const there = await stat(path);
    expect(there.isSocket()).toBe(true);
    expect(there.mode & 0o777).toBe(0o620);
    expect(await readdir(directory)).toEqual(['guest.sock']);
    await link.close();
    expect(await readdir(directory)).toEqual([]);
  });

  it('does not remove a socket that another server has put in its place', async () => {
    const link = await listen();
    const other = await listenForGuest(path, { hello: () => ({ sandbox: 'sbx_a', incarnation: 2 }) });
    await link.close();
    expect(await readdir(directory)).toEqual(['guest.sock']);
    await other.close();
  });

  it('refuses a path that a socket cannot have', async () => {
    await expect(
      listenForGuest(`/tmp/${'x'.repeat(110)}`, { hello: () => ({ sandbox: 'sbx_a', incarnation: 1 }) }),
    ).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('lets a call wait for a guest that has not connected yet, until the timeout', async () => {
    const link = await listen({ waitMs: 30 });
    await expect(link.guest.exec(request)).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('30 ms'),
    });
    const ready = link.ready();
    const starting = link.ready().then(() => link.guest.exec(request));
    await dial();
    expect((await ready).hello.boot).toBe(BOOT.toString('hex'));
    expect((await collect(await starting, { maxBytes: 1e9 })).stdout.length).toBeGreaterThan(0);
  });

  it('rejects what waits when it is closed or the call is aborted', async () => {
    const link = await listen();
    const abort = new AbortController();
    const aborted = link.guest.commands({ signal: abort.signal });
    abort.abort();
    await expect(aborted).rejects.toMatchObject({ code: 'cancelled' });
    const rejected = expect(link.guest.commands()).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('the sandbox was removed'),
    });
    await link.close('the sandbox was removed');
    await rejected;
  });

  it('takes the newest connection and tells of changes', async () => {
    const seen: string[] = [];
    const link = await listen({ onChange: () => seen.push('change'), onLost: () => seen.push('lost') });
    const first = await dial();
    const client = await link.ready();
    const second = await dial();
    await client.closed;
    expect(link.current).not.toBe(client);
    expect(first.destroyed || (await once(first, 'close'))).toBeTruthy();
    expect(seen).toEqual(['change', 'change']);
    const current = await link.ready();
    second.destroy();
    await current.closed;
    await Promise.resolve();
    expect(seen).toEqual(['change', 'change', 'lost']);
    expect(link.current).toBeUndefined();
  });

  it('keeps at most four unknown connections waiting for hello, and a real guest gets through', async () => {
    const link = await listen();
    const strangers = Array.from({ length: 8 }, () => connect(path));
    for (const one of strangers) one.on('error', () => {});
    sockets.push(...strangers);
    await once(strangers[0] as Socket, 'close');
    await dial();
    await link.ready();
  });
});

describe('a quiesced link', () => {
  const quiesce = { drainMs: 5_000, dialAfterMs: 2 };

  /** A guest that answers what the test tells it to, and hangs up when asked. */
  async function scripted(): Promise<ScriptedGuest> {
    const socket = connect(path);
    sockets.push(socket);
    await once(socket, 'connect');
    const guest = new ScriptedGuest(socket);
    guest.hello();
    void guest.next(FRAME.hangup).then(() => socket.destroy());
    await guest.next(FRAME.hello);
    return guest;
  }

  function answer(guest: ScriptedGuest, stream: number): void {
    guest.send(FRAME.message, stream, { commands: [] });
    guest.send(FRAME.end, stream);
  }

  it('lets calls in progress finish, makes others wait for the next connection, and does not report a lost guest', async () => {
    let lost = 0;
    const link = await listen({ onLost: () => (lost += 1) });
    const guest = await scripted();
    await link.ready();
    const before = link.guest.commands();
    const { stream } = await guest.opened();
    const quiescing = link.quiesce(quiesce);
    const during = link.guest.commands();
    const ready = link.ready();
    answer(guest, stream);
    expect(await before).toEqual([]);
    const resume = await quiescing;
    expect(existsSync(path)).toBe(false);
    expect(link.current).toBeUndefined();
    await resume();
    const again = await scripted();
    answer(again, (await again.opened()).stream);
    expect(await during).toEqual([]);
    expect((await ready).connection.error).toBeUndefined();
    expect(lost).toBe(0);
  });

  it('cuts off a call that takes too long', async () => {
    const link = await listen();
    await scripted();
    await link.ready();
    const call = expect(link.guest.commands()).rejects.toMatchObject({ code: 'unavailable' });
    const resume = await link.quiesce({ ...quiesce, drainMs: 30 });
    await call;
    await resume();
  });

  it('does not wait for commands, which go on with the next connection', async () => {
    const link = await listen();
    let sent = 0;
    const hanging = (socket: Socket) => void (sent === 0 && ((sent += 1), socket.pause()));
    const first = await dial({ ends: false, onSent: hanging });
    const handle = await link.guest.exec(request);
    const reading = collect(handle, { maxBytes: 1e9 });
    first.resume();
    const quiescing = link.quiesce(quiesce);
    // The guest that only has a log does not know how to hang up.
    await expect.poll(() => existsSync(path)).toBe(false);
    first.destroy();
    await (
      await quiescing
    )();
    await dial();
    const { stdout, stderr } = await reading;
    expect(stdout.length + stderr.length).toBe(output.length);
  });

  it('goes on watching with the next connection, and tells what differs', async () => {
    const link = await listen();
    const guest = await scripted();
    await link.ready();
    const port = (number: number) => ({ port: number, address: '127.0.0.1' });
    const ports = link.guest.ports.watch()[Symbol.asyncIterator]();
    const files = link.guest.files('root').watch('/work');
    const event = ports.next();
    for (let count = 0; count < 2; count++) {
      const { stream, request: asked } = await guest.opened();
      if (asked['op'] === 'watch') guest.send(FRAME.message, stream, { ready: true });
      else guest.send(FRAME.message, stream, { opened: [port(80), port(81)], closed: [] });
    }
    expect([await event, await ports.next()]).toMatchObject([
      { value: { type: 'opened', port: 80 } },
      { value: { port: 81 } },
    ]);
    const changes = (await files)[Symbol.asyncIterator]();
    const change = changes.next();
    const next = ports.next();
    await (
      await link.quiesce(quiesce)
    )();
    const again = await scripted();
    expect(await change).toMatchObject({ value: { type: 'overflow', path: '/work' } });
    const later = changes.next();
    for (let count = 0; count < 2; count++) {
      const { stream, request: asked } = await again.opened();
      if (asked['op'] === 'watch') {
        again.send(FRAME.message, stream, { ready: true });
        again.send(FRAME.message, stream, { events: [{ type: 'created', path: '/work/x' }] });
      } else again.send(FRAME.message, stream, { opened: [port(81), port(82)], closed: [] });
    }
    expect([await next, await ports.next()]).toMatchObject([
      { value: { type: 'closed', port: 80 } },
      { value: { type: 'opened', port: 82 } },
    ]);
    expect(await later).toMatchObject({ value: { type: 'created', path: '/work/x' } });
    await ports.return?.();
    await changes.return?.();
  });

  it('refuses to be quiesced twice at once, and a call that waits can be aborted', async () => {
    const link = await listen();
    await scripted();
    await link.ready();
    const resume = await link.quiesce(quiesce);
    await expect(link.quiesce(quiesce)).rejects.toMatchObject({ code: 'conflict' });
    const abort = new AbortController();
    const waiting = link.guest.commands({ signal: abort.signal });
    abort.abort();
    await expect(waiting).rejects.toMatchObject({ code: 'cancelled' });
    const other = expect(link.guest.commands()).rejects.toMatchObject({ code: 'unavailable' });
    await link.close('the sandbox was removed');
    await other;
    await resume();
    expect(existsSync(path)).toBe(false);
  });
});

describe('a running command', () => {
  it('loses and repeats no byte when connections are cut at random', { timeout: 60_000 }, async () => {
    for (let round = 0; round < 8; round++) {
      const link = await listen();
      let cuts = 0;
      const redial = async (): Promise<void> => {
        const limit = Math.floor(Math.random() * 40);
        let sent = 0;
        const socket = await dial({
          pieceBytes: () => 1 + Math.floor(Math.random() * 50_000),
          onSent: (one) => {
            if (++sent <= limit || cuts >= 25) return;
            cuts++;
            // Sometimes what was sent still arrives, sometimes the middle of a frame is the last of it.
            if (Math.random() < 0.5) one.end();
            else one.destroy();
          },
        });
        socket.once('close', () => void redial().catch(() => {}));
      };
      await redial();
      const handle = await link.guest.exec(request);
      const parts: Buffer[] = [];
      let at = 0;
      for await (const chunk of handle.output) {
        if (chunk.channel === 'gap') throw new Error(`a gap at ${chunk.offset}`);
        expect(chunk.offset).toBe(at);
        at += chunk.data.length;
        parts.push(Buffer.from(chunk.data));
      }
      expect(Buffer.concat(parts).equals(output)).toBe(true);
      expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 3 });
      expect(cuts).toBeGreaterThan(0);
      for (const socket of sockets.splice(0)) socket.removeAllListeners('close').destroy();
      await link.close();
    }
  });

  it('that says nothing is followed across connections without a reader', async () => {
    const link = await listen();
    const first = await dial({ output: Buffer.alloc(0), ends: false });
    const handle = await link.guest.exec(request);
    first.destroy();
    await dial({ output: Buffer.alloc(0) });
    expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 3 });
  });

  it('is lost when the guest was restarted, after what had arrived was read', async () => {
    const link = await listen();
    const first = await dial({ output: output.subarray(0, 1000), ends: false });
    const handle = await link.guest.exec(request);
    const iterator = handle.output[Symbol.asyncIterator]();
    expect((await iterator.next()).value).toMatchObject({ offset: 0 });
    first.destroy();
    await dial({ boot: Buffer.alloc(16, 9) });
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
    expect(await handle.ended).toMatchObject({
      kind: 'lost',
      reason: expect.stringContaining('was restarted'),
    });
  });

  it('is lost when the link is closed', async () => {
    const link = await listen();
    await dial({ output: Buffer.alloc(0), ends: false });
    const collecting = collect(await link.guest.exec(request), { maxBytes: 1 });
    await link.close('the sandbox was removed');
    expect((await collecting).end).toMatchObject({
      kind: 'lost',
      reason: expect.stringContaining('the sandbox was removed'),
    });
  });

  it('can be let go while there is no connection, by closing the handle or aborting the signal', async () => {
    const link = await listen();
    const socket = await dial({ output: Buffer.alloc(0), ends: false });
    const abort = new AbortController();
    const closed = await link.guest.exec(request);
    const aborted = await link.guest.exec(request, { signal: abort.signal });
    const reading = aborted.output[Symbol.asyncIterator]().next();
    const client = await link.ready();
    socket.destroy();
    await client.closed;
    await closed[Symbol.asyncDispose]();
    expect(await closed.ended).toMatchObject({ kind: 'lost' });
    abort.abort();
    await expect(reading).rejects.toMatchObject({ code: 'cancelled' });
    expect(await aborted.ended).toMatchObject({ kind: 'lost' });
  });

  it('takes input again after a connection was lost', async () => {
    const link = await listen();
    const first = await dial({ output: Buffer.alloc(0), ends: false });
    const handle = await link.guest.exec({ ...request, stdin: true });
    const client = await link.ready();
    first.destroy();
    await client.closed;
    const writing = handle.write(Buffer.from('in'));
    let input = '';
    await dial({ output: Buffer.alloc(0), ends: false, onInput: (bytes) => (input += bytes.toString()) });
    await writing;
    await (await link.ready()).ping();
    expect(input).toBe('in');
  });
});
