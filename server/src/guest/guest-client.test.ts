import { Buffer } from 'node:buffer';
import { setTimeout as wait } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { collect } from './collect.ts';
import { FRAME } from './frame.ts';
import type { GuestExec } from './guest.ts';
import { connectGuest } from './guest-client.ts';
import { ScriptedGuest } from './testing/scripted-guest.ts';
import { socketPair } from './testing/socket-pair.ts';

const open: { destroy(): void }[] = [];
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

async function connected() {
  const [near, far] = await socketPair();
  open.push(near, far);
  const guest = new ScriptedGuest(far);
  guest.hello();
  const client = await connectGuest(near, { sandbox: 'sbx_a', incarnation: 1 });
  return { client, guest };
}

const request: GuestExec = { id: 'c1', argv: ['x'], env: {}, workdir: '/', user: 'root' };

async function started(options: { signal?: AbortSignal; request?: Partial<GuestExec> } = {}) {
  const { client, guest } = await connected();
  const starting = client.exec({ ...request, ...options.request }, { signal: options.signal });
  const { stream, request: sent } = await guest.opened();
  guest.send(FRAME.message, stream, { event: 'started', pid: 7, offset: 0, existing: false });
  const handle = await starting;
  const end = (bytes: number) => {
    guest.send(FRAME.message, stream, { event: 'end', kind: 'exited', code: 3, offset: bytes });
    guest.send(FRAME.end, stream);
  };
  return { client, guest, stream, handle, sent, end };
}

const info = { name: 'a', path: '/a', type: 'file', size: 1, mode: 0o644, uid: 0, gid: 0, mtimeMs: 5 };

describe('a command', () => {
  it('gives its output with channels and offsets, gaps included, and then its end', async () => {
    const { handle, guest, stream, end, client } = await started();
    guest.send(FRAME.data, stream, Buffer.from('out'), 1);
    guest.send(FRAME.data, stream, Buffer.from('err'), 2);
    guest.send(FRAME.message, stream, { event: 'gap', bytes: 100 });
    guest.send(FRAME.message, stream, { event: 'something new' });
    guest.send(FRAME.data, stream, Buffer.from('tty'), 3);
    end(109);
    const seen: unknown[] = [];
    for await (const chunk of handle.output) {
      seen.push('data' in chunk ? [chunk.channel, chunk.offset, Buffer.from(chunk.data).toString()] : chunk);
    }
    expect(seen).toEqual([
      ['stdout', 0, 'out'],
      ['stderr', 3, 'err'],
      { channel: 'gap', offset: 6, bytes: 100 },
      ['pty', 106, 'tty'],
    ]);
    expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 3 });
    await guest.next(FRAME.end);
    expect(client.connection.streams).toBe(0);
  });

  it('that says nothing ends without a reader', async () => {
    const { handle, end } = await started();
    end(0);
    expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 3 });
    for await (const chunk of handle.output) expect(chunk).toBeUndefined();
  });

  it('does not end before its output was taken', async () => {
    const { handle, guest, stream, end, client } = await started();
    guest.send(FRAME.data, stream, Buffer.from('out'), 1);
    end(3);
    guest.send(FRAME.message, 99, {});
    const ping = client.ping();
    guest.send(FRAME.pong, 0, (await guest.next(FRAME.ping)).payload);
    await ping;
    expect(await Promise.race([handle.ended, Promise.resolve('not yet')])).toBe('not yet');
    const iterator = handle.output[Symbol.asyncIterator]();
    await iterator.next();
    expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 3 });
    expect(() => handle.output[Symbol.asyncIterator]()).toThrow('twice');
  });

  it('whose handle is closed tells its end if that is here, and detaches if not', async () => {
    const one = await started();
    one.guest.send(FRAME.data, one.stream, Buffer.from('out'), 1);
    one.end(3);
    const ping = one.client.ping();
    one.guest.send(FRAME.pong, 0, (await one.guest.next(FRAME.ping)).payload);
    await ping;
    await one.handle[Symbol.asyncDispose]();
    expect(await one.handle.ended).toEqual({ kind: 'exited', exitCode: 3 });

    const two = await started();
    const reading = two.handle.output[Symbol.asyncIterator]().next();
    await two.handle[Symbol.asyncDispose]();
    expect(await two.handle.ended).toMatchObject({ kind: 'lost' });
    expect(await reading).toEqual({ done: true, value: undefined });
    expect((await two.guest.next(FRAME.reset)).stream).toBe(two.stream);
  });

  it('is lost when the connection is, after what had arrived was read', async () => {
    const { handle, guest, stream, client } = await started();
    guest.send(FRAME.data, stream, Buffer.from('out'), 1);
    const ping = client.ping();
    guest.send(FRAME.pong, 0, (await guest.next(FRAME.ping)).payload);
    await ping;
    guest.socket.destroy();
    await client.closed;
    const { stdout, end } = await collect(handle, { maxBytes: 10 });
    expect(stdout.toString()).toBe('out');
    expect(end).toMatchObject({ kind: 'lost', reason: expect.stringContaining('hung up') });
    await expect(handle.write(Buffer.from('x'))).rejects.toMatchObject({ code: 'failed_precondition' });
  });

  it('is let go when its signal is aborted, which a reader sees', async () => {
    const abort = new AbortController();
    const { handle, guest, stream } = await started({ signal: abort.signal });
    const reading = handle.output[Symbol.asyncIterator]().next();
    abort.abort();
    await expect(reading).rejects.toMatchObject({ code: 'cancelled' });
    expect(await handle.ended).toMatchObject({ kind: 'lost' });
    expect((await guest.next(FRAME.reset)).stream).toBe(stream);
  });

  it('takes input only if it was started with it', async () => {
    const without = await started();
    await expect(without.handle.write(Buffer.from('x'))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    const { handle, guest, sent } = await started({ request: { stdin: true } });
    expect(sent['stdin']).toBe(true);
    await handle.write(Buffer.from('in'));
    await handle.closeStdin();
    expect((await guest.next(FRAME.data)).payload.toString()).toBe('in');
    await guest.next(FRAME.message);
  });

  it('with the smallest log is granted what was read before its log is full', async () => {
    const { handle, guest, stream } = await started({ request: { keepBytes: 4096 } });
    guest.send(FRAME.data, stream, Buffer.alloc(3000), 1);
    const iterator = handle.output[Symbol.asyncIterator]();
    await iterator.next();
    void iterator.next();
    expect((await guest.next(FRAME.credit)).payload.readUInt32BE(0)).toBeGreaterThanOrEqual(3000);
  });

  it('that cannot be started rejects with the guest’s reason', async () => {
    const { client, guest } = await connected();
    const starting = client.exec(request);
    const { stream } = await guest.opened();
    guest.send(FRAME.reset, stream, {
      code: 'not_found',
      message: 'no',
      details: { what: 'command', exitCode: 127 },
    });
    await expect(starting).rejects.toMatchObject({
      code: 'not_found',
      details: { what: 'command', exitCode: 127 },
    });
  });

  it('is collected up to a limit', async () => {
    const { handle, guest, stream, end } = await started();
    guest.send(FRAME.data, stream, Buffer.from('12345'), 1);
    guest.send(FRAME.data, stream, Buffer.from('abcde'), 2);
    end(10);
    const { stdout, stderr, truncated } = await collect(handle, { maxBytes: 7 });
    expect([stdout.toString(), stderr.toString(), truncated]).toEqual(['12345', 'ab', true]);
  });

  it.each([
    ['a negative code', { event: 'end', kind: 'exited', code: -1, offset: 0 }],
    ['an unknown end', { event: 'end', kind: 'vanished', offset: 0 }],
    ['a negative gap', { event: 'gap', bytes: -1 }],
    ['a second start', { event: 'started', pid: 1, offset: 0, existing: false }],
  ])('with %s ends the connection', async (_, message) => {
    const { client, handle, guest, stream } = await started();
    const reading = collect(handle, { maxBytes: 1 }).catch((error: unknown) => error);
    guest.send(FRAME.message, stream, message);
    await client.closed;
    expect(client.connection.error).toMatchObject({ details: { reason: 'protocol_violation' } });
    await reading;
    expect(await handle.ended).toMatchObject({ kind: 'lost' });
  });

  it('with bad events that came together ends the connection too, and for all that it carries', async () => {
    const { client, handle, guest } = await started();
    const again = { event: 'started', pid: 1, offset: 0, existing: false };
    const asking = client.stats().catch((error: unknown) => error);
    await guest.opened();
    const reading = client.exec({ ...request, id: 'c2' }).then(
      (second) => collect(second, { maxBytes: 1 }),
      () => {},
    );
    const { stream } = await guest.opened();
    // All before anybody reads: what is left of them is looked at when the connection ends.
    guest.socket.cork();
    for (let at = 0; at < 5; at++) guest.send(FRAME.message, stream, again);
    guest.socket.uncork();
    await client.closed;
    await reading;
    expect(await asking).toMatchObject({ code: 'unavailable' });
    expect(await handle.ended).toMatchObject({ kind: 'lost' });
  });

  it('with an invalid end that is never read closes the connection too', async () => {
    const { client, handle, guest, stream } = await started();
    guest.send(FRAME.message, stream, { event: 'end', kind: 'exited', code: 'zero', offset: 0 });
    await client.closed;
    expect(await handle.ended).toMatchObject({ kind: 'lost' });
  });
});

describe('files', () => {
  it('come with names that are not UTF-8 as text with U+FFFD', async () => {
    const { client, guest } = await connected();
    const stat = client.files('root').stat('/a');
    const { stream, request: sent } = await guest.opened();
    expect(sent).toMatchObject({ op: 'stat', user: 'root', path: '/a', follow: false });
    guest.send(FRAME.message, stream, { info: { ...info, name: Buffer.from([0x61, 0xff]) } });
    guest.send(FRAME.end, stream);
    expect(await stat).toEqual({
      name: 'a\ufffd',
      path: '/a',
      type: 'file',
      sizeBytes: 1,
      mode: 0o644,
      uid: 0,
      gid: 0,
      modifiedAtMs: 5,
    });
  });

  it.each([
    ['a negative size', { ...info, size: -1 }],
    ['a name of 1 MB', { ...info, name: 'x'.repeat(1_000_000) }],
    ['an unknown type', { ...info, type: 'door' }],
    ['a mode beyond the permission bits', { ...info, mode: 0o100644 }],
    ['no path', { ...info, path: null }],
  ])('with %s end the connection', async (_, bad) => {
    const { client, guest } = await connected();
    const stat = client.files('root').stat('/a');
    const { stream } = await guest.opened();
    guest.send(FRAME.message, stream, { info: bad });
    await expect(stat).rejects.toMatchObject({
      code: 'unavailable',
      details: { reason: 'protocol_violation' },
    });
    await client.closed;
  });

  it('that are listed reset their stream when the reader stops, also while it waits', async () => {
    const { client, guest } = await connected();
    const iterator = client.files('root').list('/', { depth: 2 })[Symbol.asyncIterator]();
    const first = iterator.next();
    const { stream } = await guest.opened();
    guest.send(FRAME.message, stream, { entries: [info] });
    expect(await first).toMatchObject({ value: { path: '/a' } });
    const second = iterator.next();
    await iterator.return?.();
    expect(await second).toEqual({ done: true, value: undefined });
    expect((await guest.next(FRAME.reset)).stream).toBe(stream);
    expect(client.connection.streams).toBe(0);
  });

  it('that cannot be written reject while the data has nothing to give, and close it', async () => {
    const { client, guest } = await connected();
    let closed = false;
    const data: AsyncIterable<Uint8Array> = {
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise(() => {}),
        return: () => ((closed = true), Promise.resolve({ done: true, value: undefined })),
      }),
    };
    const writing = client.files('root').write('/a', data);
    const { stream } = await guest.opened();
    guest.send(FRAME.reset, stream, {
      code: 'resource_exhausted',
      message: 'full',
      details: { errno: 'ENOSPC' },
    });
    await expect(writing).rejects.toMatchObject({ code: 'resource_exhausted', details: { errno: 'ENOSPC' } });
    expect(closed).toBe(true);
  });

  it('whose data fails are not written: the stream is reset and the failure passed on', async () => {
    const { client, guest } = await connected();
    const writing = client.files('root').write(
      '/a',
      (async function* () {
        yield Buffer.from('half');
        throw new Error('the client went away');
      })(),
    );
    await expect(writing).rejects.toThrow('the client went away');
    await guest.next(FRAME.data);
    await guest.next(FRAME.reset);
  });

  it('are read as data that is reset when it is closed early', async () => {
    const { client, guest } = await connected();
    const reading = client.files('root').read('/a');
    const { stream } = await guest.opened();
    guest.send(FRAME.message, stream, { info });
    guest.send(FRAME.data, stream, Buffer.from('abc'));
    const { data } = await reading;
    for await (const chunk of data) {
      expect(Buffer.from(chunk).toString()).toBe('abc');
      break;
    }
    expect((await guest.next(FRAME.reset)).stream).toBe(stream);
  });
});

describe('a call', () => {
  it('that is aborted resets its stream', async () => {
    const { client, guest } = await connected();
    const stat = client.files('root').stat('/a', { signal: AbortSignal.timeout(10) });
    const { stream } = await guest.opened();
    await expect(stat).rejects.toMatchObject({ code: 'deadline_exceeded' });
    expect((await guest.next(FRAME.reset)).stream).toBe(stream);
  });

  it('that is too large for a frame is refused and harms no other', async () => {
    const { client, guest } = await connected();
    await expect(client.exec({ ...request, argv: ['x'.repeat(1_100_000)] })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
    const commands = client.commands();
    const { stream } = await guest.opened();
    guest.send(FRAME.message, stream, {
      commands: [
        {
          id: 'c1',
          pid: 7,
          argv: ['x'],
          pty: false,
          startedAtMs: 1,
          outputBytes: 9,
          keptFrom: 2,
          kind: 'signalled',
          signal: 9,
        },
      ],
    });
    guest.send(FRAME.end, stream);
    expect(await commands).toEqual([
      {
        id: 'c1',
        pid: 7,
        argv: ['x'],
        pty: false,
        startedAtMs: 1,
        outputBytes: 9,
        keptFrom: 2,
        end: { kind: 'signalled', signal: 'SIGKILL' },
      },
    ]);
  });

  it('to hang up resolves when the guest has closed the connection', async () => {
    const { client, guest } = await connected();
    const hangup = client.hangup(50);
    await guest.next(FRAME.hangup);
    guest.socket.end();
    await hangup;
    await wait(0);
    expect(client.connection.error?.code).toBe('unavailable');
  });
});

describe('a guest that lies', () => {
  it('ends its connection by sending more of a file than was asked for', async () => {
    const { client, guest } = await connected();
    const reading = client.files('root').read('/a', { length: 10 });
    const { stream } = await guest.opened();
    guest.send(FRAME.message, stream, { info });
    const { data } = await reading;
    guest.send(FRAME.data, stream, Buffer.alloc(11));
    await expect(Array.fromAsync(data)).rejects.toMatchObject({ details: { reason: 'protocol_violation' } });
    expect(client.connection.error).toBeDefined();
  });

  it('keeps no call waiting that needs an answer at once', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const { client, guest } = await connected();
      const asked = client.files('root').stat('/a');
      await guest.opened();
      const refused = expect(asked).rejects.toMatchObject({
        code: 'deadline_exceeded',
        message: expect.stringContaining('"stat"'),
      });
      await vi.advanceTimersByTimeAsync(60_000);
      await refused;
      expect(client.connection.streams).toBe(0);
      expect(client.connection.error).toBeUndefined();
    } finally {
      vi.useRealTimers();
    }
  });

  it('is read at a pace that leaves time for others, however many frames it sends', async () => {
    const { client, guest } = await connected();
    const frame = Buffer.alloc(12);
    frame[4] = FRAME.pong;
    const startedAt = performance.now();
    guest.socket.write(Buffer.concat(Array.from({ length: 20_000 }, () => frame)));
    guest.send(FRAME.ping, 0, Buffer.from('done'));
    await guest.next(FRAME.pong);
    // 50 in a millisecond: 20,000 take 400.
    expect(performance.now() - startedAt).toBeGreaterThan(250);
    expect(client.connection.error).toBeUndefined();
  });
});

describe('still()', () => {
  it('holds until it is released, whatever becomes of the signal that bounded the answer', async () => {
    const { client, guest } = await connected();
    const waiting = new AbortController();
    const asking = client.still({ signal: waiting.signal });
    const { stream, request: sent } = await guest.opened();
    expect(sent).toMatchObject({ op: 'still' });
    guest.send(FRAME.message, stream, {});
    const still = await asking;
    waiting.abort();
    expect(still.isOver).toBe(false);
    still.release();
    await guest.next(FRAME.reset);
    expect(still.isOver).toBe(true);
  });

  it('is given up where no answer comes in time', async () => {
    const { client, guest } = await connected();
    const waiting = new AbortController();
    const asking = client.still({ signal: waiting.signal });
    await guest.opened();
    waiting.abort();
    await expect(asking).rejects.toMatchObject({ code: 'cancelled' });
    await guest.next(FRAME.reset);
    expect(client.connection.streams).toBe(0);
  });
});
