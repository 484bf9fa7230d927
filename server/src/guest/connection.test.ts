import fc from 'fast-check';
import { Buffer } from 'node:buffer';
import { afterEach, describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import { decodeCborMap } from './cbor.ts';
import { GuestConnection } from './connection.ts';
import { FRAME, INITIAL_CREDIT } from './frame.ts';
import { BOOT, ScriptedGuest } from './testing/scripted-guest.ts';
import { socketPair } from './testing/socket-pair.ts';

const open: { destroy(): void }[] = [];
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

async function sockets() {
  const pair = await socketPair();
  open.push(...pair);
  return pair;
}

async function connected() {
  const [near, far] = await sockets();
  const guest = new ScriptedGuest(far);
  guest.hello();
  const connection = await GuestConnection.connect(near, { sandbox: 'sbx_a', incarnation: 1 });
  return { connection, guest };
}

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe('hello', () => {
  it('is answered with what the guest has to know', async () => {
    const [near, far] = await sockets();
    const guest = new ScriptedGuest(far);
    guest.hello();
    const connection = await GuestConnection.connect(near, {
      sandbox: 'sbx_a',
      incarnation: 3,
      memoryLimit: 5e9,
    });
    expect(connection.hello).toEqual({ version: '0.0.0', boot: BOOT.toString('hex'), features: ['exec'] });
    const answer = await guest.next(FRAME.hello);
    expect({ ...decodeCborMap(answer.payload) }).toEqual({
      protocol: 1,
      sandbox: 'sbx_a',
      incarnation: 3,
      memoryLimit: 5e9,
    });
  });

  it('that does not come ends the connection after its time', async () => {
    const [near] = await sockets();
    const connecting = GuestConnection.connect(near, {
      sandbox: 'sbx_a',
      incarnation: 1,
      helloTimeoutMs: 20,
    });
    await expect(connecting).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('say hello'),
    });
    expect(near.destroyed).toBe(true);
  });

  it('that is given up ends the connection', async () => {
    const [near] = await sockets();
    const abort = new AbortController();
    const connecting = GuestConnection.connect(near, {
      sandbox: 'sbx_a',
      incarnation: 1,
      signal: abort.signal,
    });
    abort.abort();
    await expect(connecting).rejects.toMatchObject({ code: 'cancelled' });
  });

  it.each([
    ['of another protocol', 'unsupported', { protocol: 2, version: '1', boot: BOOT, features: [] }],
    ['without boot', 'unavailable', { protocol: 1, version: '1', features: [] }],
    [
      'with an endless version',
      'unavailable',
      { protocol: 1, version: 'x'.repeat(5000), boot: BOOT, features: [] },
    ],
  ])('%s rejects', async (_, code, hello) => {
    const [near, far] = await sockets();
    new ScriptedGuest(far).send(FRAME.hello, 0, hello);
    await expect(GuestConnection.connect(near, { sandbox: 'sbx_a', incarnation: 1 })).rejects.toMatchObject({
      code,
    });
  });

  it('must come before anything else', async () => {
    const [near, far] = await sockets();
    new ScriptedGuest(far).send(FRAME.ping, 0);
    await expect(GuestConnection.connect(near, { sandbox: 'sbx_a', incarnation: 1 })).rejects.toMatchObject({
      code: 'unavailable',
    });
  });
});

describe('a connection', () => {
  it('answers PING, and resolves its own when PONG comes', async () => {
    const { connection, guest } = await connected();
    guest.send(FRAME.ping, 0, Buffer.from('abc'));
    expect((await guest.next(FRAME.pong)).payload.toString()).toBe('abc');
    const ping = connection.ping();
    guest.send(FRAME.pong, 0, (await guest.next(FRAME.ping)).payload);
    await ping;
  });

  it('rejects pending calls when it is lost, and resolves "closed"', async () => {
    const { connection, guest } = await connected();
    const stream = connection.open('stat', { path: '/' }, { half: true });
    const reading = stream.read();
    const ping = connection.ping();
    guest.socket.destroy();
    await expect(reading).rejects.toMatchObject({ code: 'unavailable' });
    await expect(ping).rejects.toMatchObject({ code: 'unavailable' });
    await connection.closed;
    expect(() => connection.open('stat', {})).toThrow(CayError);
    expect(connection.streams).toBe(0);
  });

  it('turns a RESET into an error, with an unknown code as "internal" and only plain details', async () => {
    const { connection, guest } = await connected();
    const first = connection.open('a', {});
    const second = connection.open('b', {});
    guest.send(FRAME.reset, first.id, {
      code: 'not_found',
      message: 'gone',
      details: { errno: 'ENOENT', deep: { a: 1 }, __proto__x: 1 },
    });
    guest.send(FRAME.reset, second.id, { code: 'toString', message: 'odd' });
    await expect(first.read()).rejects.toMatchObject({
      code: 'not_found',
      message: 'gone',
      details: { errno: 'ENOENT' },
    });
    await expect(second.read()).rejects.toMatchObject({ code: 'internal', message: 'odd' });
    expect(connection.streams).toBe(0);
    expect(connection.error).toBeUndefined();
  });

  it('ignores frames for streams that are over or never were', async () => {
    const { connection, guest } = await connected();
    for (const type of [FRAME.message, FRAME.data, FRAME.reset]) guest.send(type, 99, Buffer.alloc(10));
    guest.send(FRAME.end, 77);
    guest.credit(55, 10);
    const ping = connection.ping();
    guest.send(FRAME.pong, 0, (await guest.next(FRAME.ping)).payload);
    await ping;
  });

  it('resets a stream whose signal is aborted, and leaves no listener behind', async () => {
    const { connection, guest } = await connected();
    const abort = new AbortController();
    const stream = connection.open('stat', {}, { signal: abort.signal });
    const reading = stream.read();
    abort.abort();
    await expect(reading).rejects.toMatchObject({ code: 'cancelled' });
    expect((await guest.next(FRAME.reset)).stream).toBe(stream.id);
    expect(connection.streams).toBe(0);
    expect(() => connection.open('stat', {}, { signal: abort.signal })).toThrow('cancelled');
  });

  it('refuses a stream that the guest opens, and goes on', async () => {
    const { connection, guest } = await connected();
    guest.send(FRAME.open, 2, { op: 'egress' });
    expect(decodeCborMap((await guest.next(FRAME.reset)).payload)['code']).toBe('unsupported');
    expect(connection.error).toBeUndefined();
  });

  const offences: [string, (guest: ScriptedGuest, stream: number) => void][] = [
    ['opens an odd stream', (guest) => guest.send(FRAME.open, 9, { op: 'x' })],
    [
      'opens a stream twice',
      (guest) => (guest.send(FRAME.open, 2, { op: 'x' }), guest.send(FRAME.open, 2, { op: 'x' })),
    ],
    ['says hello twice', (guest) => guest.hello()],
    ['tells the server to hang up', (guest) => guest.send(FRAME.hangup, 0, { dialAfterMs: 1 })],
    [
      'ends a stream twice',
      (guest, stream) => (guest.send(FRAME.end, stream), guest.send(FRAME.end, stream)),
    ],
    [
      'sends after END',
      (guest, stream) => (guest.send(FRAME.end, stream), guest.send(FRAME.message, stream, {})),
    ],
    ['sends a RESET that is no map', (guest, stream) => guest.send(FRAME.reset, stream, Buffer.from([0xff]))],
    [
      'sends a message that is no map',
      (guest, stream) => guest.send(FRAME.message, stream, Buffer.from([0x01])),
    ],
    ['sends a CREDIT of three bytes', (guest, stream) => guest.send(FRAME.credit, stream, Buffer.alloc(3))],
    ['sends garbage', (guest) => guest.socket.write(Buffer.alloc(100, 0xee))],
  ];
  it.each(offences)('is ended by a guest that %s', async (_, offend) => {
    const { connection, guest } = await connected();
    const stream = connection.open('watch', {});
    const all = (async () => {
      while (await stream.read());
      return 'ended';
    })().catch((error: unknown) => error);
    offend(guest, stream.id);
    await connection.closed;
    expect(connection.error).toMatchObject({
      code: 'unavailable',
      details: { reason: 'protocol_violation' },
    });
    await all;
  });

  it('is ended by a guest that floods it with PING and reads nothing', async () => {
    const [near, far] = await sockets();
    const guest = new ScriptedGuest(far);
    guest.hello();
    const connection = await GuestConnection.connect(near, { sandbox: 'sbx_a', incarnation: 1 });
    far.pause();
    const flood = Buffer.concat(
      Array.from({ length: 2000 }, () =>
        Buffer.from([0, 0, 0, 64, 8, 0, 0, 0, 0, 0, 0, 0, ...Array<number>(64).fill(1)]),
      ),
    );
    while (!connection.error) {
      if (!far.write(flood))
        await Promise.race([new Promise((resolve) => far.once('drain', resolve)), connection.closed]);
    }
    expect(connection.error.message).toContain('does not read');
  });
});

describe('credit', () => {
  it('that is overdrawn by more than one frame ends the connection', async () => {
    const { connection, guest } = await connected();
    const stream = connection.open('read', {});
    guest.send(FRAME.data, stream.id, Buffer.alloc(131_072));
    guest.send(FRAME.data, stream.id, Buffer.alloc(131_071));
    guest.send(FRAME.data, stream.id, Buffer.alloc(131_072));
    guest.send(FRAME.ping, 0);
    await guest.next(FRAME.pong);
    expect(connection.error).toBeUndefined();
    guest.send(FRAME.data, stream.id, Buffer.alloc(1));
    await connection.closed;
    expect(connection.error?.message).toContain('overdrawn');
  });

  it('is overdrawn by a flood of unread messages', async () => {
    const { connection, guest } = await connected();
    const stream = connection.open('watch', {});
    for (let i = 0; i < 3; i++) guest.send(FRAME.message, stream.id, { events: [Buffer.alloc(200_000)] });
    await connection.closed;
    expect(connection.error?.message).toContain('overdrawn');
  });

  it('is granted only as data is taken', async () => {
    const { connection, guest } = await connected();
    const stream = connection.open('read', {});
    guest.send(FRAME.data, stream.id, Buffer.alloc(100_000));
    guest.send(FRAME.ping, 0);
    await guest.next(FRAME.pong);
    let granted = 0;
    const grant = guest.next(FRAME.credit).then((frame) => (granted = frame.payload.readUInt32BE(0)));
    await wait(10);
    expect(granted).toBe(0);
    let taken = 0;
    while (taken < 100_000) {
      const item = await stream.read();
      if (item && !item.message) taken += item.data.length;
    }
    void stream.read().catch(() => {});
    await grant;
    expect(granted).toBeGreaterThanOrEqual(65_536);
    expect(granted).toBeLessThanOrEqual(100_000);
  });

  it('keeps a writer within one frame of what was granted, and lets all of it through in the end', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 400_000 }), { minLength: 1, maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 200_000 }), { minLength: 1, maxLength: 6 }),
        async (writes, grants) => {
          const { connection, guest } = await connected();
          const stream = connection.open('write', {});
          const total = writes.reduce((sum, size) => sum + size, 0);
          let received = 0;
          let allowed = INITIAL_CREDIT;
          let worst = 0;
          let turn = 0;
          let granting = false;
          const ended = new Promise<void>((resolve) => {
            guest.onFrame = ({ type, payload }) => {
              if (type === FRAME.end) return resolve();
              if (type !== FRAME.data) return;
              received += payload.length;
              worst = Math.max(worst, received - allowed);
              if (received < allowed || granting) return;
              granting = true;
              // Late, so that a writer that does not wait has time to be caught.
              setTimeout(() => {
                granting = false;
                const more = received - allowed + (grants[turn++ % grants.length] as number);
                allowed += more;
                guest.credit(stream.id, more);
              }, 1);
            };
          });
          for (const [index, size] of writes.entries()) void stream.write(Buffer.alloc(size, index));
          stream.end();
          await ended;
          expect(received).toBe(total);
          expect(worst).toBeLessThan(131_072);
          connection.close();
        },
      ),
      { numRuns: 30 },
    );
  });

  it('of one stream does not hold back another', async () => {
    const { connection, guest } = await connected();
    const stuck = connection.open('write', {});
    const free = connection.open('write', {});
    const writing = stuck.write(Buffer.alloc(1_000_000));
    await free.write(Buffer.from('hello'));
    free.end();
    expect((await guest.next(FRAME.end)).stream).toBe(free.id);
    connection.close();
    await expect(writing).rejects.toMatchObject({ code: 'unavailable' });
  });
});
