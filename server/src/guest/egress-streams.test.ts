/** Streams that the guest opens: lookups, carried connections, and guests that lie. */
import { Buffer } from 'node:buffer';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { CarriedStream, Egress, EgressTarget } from '../egress/egress.ts';
import { decodeCborMap, encodeCbor } from './cbor.ts';
import { GuestConnection } from './connection.ts';
import { FRAME, INITIAL_CREDIT, STRICT_CREDIT } from './frame.ts';
import { GuestStream, type StreamHost } from './stream.ts';
import { StreamsOfGuest } from './streams-of-guest.ts';
import { ScriptedGuest } from './testing/scripted-guest.ts';
import { socketPair } from './testing/socket-pair.ts';
import { testEgress } from './testing/test-egress.ts';

const SANDBOX = 'sbx_00000000000000000000' as SandboxId;
const closing: { destroy?(): void; close?(): void }[] = [];
afterEach(() => {
  for (const one of closing.splice(0)) (one.destroy ?? one.close)?.call(one);
});

async function connected(egress: Egress | undefined, sandbox: () => SandboxId | undefined = () => SANDBOX) {
  const [near, far] = await socketPair();
  closing.push(near, far);
  const guest = new ScriptedGuest(far);
  guest.hello();
  const connection = await GuestConnection.connect(near, {
    sandbox: SANDBOX,
    incarnation: 1,
    egress: egress && { egress, sandbox },
  });
  const hello = decodeCborMap((await guest.next(FRAME.hello)).payload);
  return { connection, guest, hello };
}

/** An egress whose connections the test holds in its hands. */
function held() {
  const connects: { target: EgressTarget; carried: CarriedStream }[] = [];
  const egress: Egress = {
    lookup: async () => ({ kind: 'absent' }),
    connect: (_sandbox, target, carried) => void connects.push({ target, carried }),
    datagrams: (_sandbox, target, carried) => void connects.push({ target, carried }),
  };
  return { egress, connects };
}

async function oneCarried() {
  const { egress, connects } = held();
  const { connection, guest } = await connected(egress);
  guest.send(FRAME.open, 2, { op: 'egress', name: 'a.test', port: 443 });
  await vi.waitUntil(() => connects.length === 1);
  return { connection, guest, ...connects[0]! };
}

const answerOf = (frame: { payload: Buffer }) => ({ ...decodeCborMap(frame.payload) });

describe('hello', () => {
  it('says whether egress is on', async () => {
    expect((await connected(testEgress())).hello).toMatchObject({ egress: true });
    expect((await connected(undefined)).hello).not.toHaveProperty('egress');
  });

  it('without egress every stream of the guest is refused, and the connection stays', async () => {
    const { guest, connection } = await connected(undefined);
    guest.send(FRAME.open, 2, { op: 'egress', name: 'a.test', port: 443 });
    expect(answerOf(await guest.next(FRAME.reset))).toMatchObject({ code: 'unsupported' });
    expect(connection.error).toBeUndefined();
    expect(connection.streams).toBe(0);
  });
});

describe('lookup', () => {
  it('is answered with what the egress says', async () => {
    const egress = testEgress({ 'a.test:80': 1, 'a.test:443': 1 });
    const { guest, connection } = await connected(egress);
    guest.send(FRAME.open, 2, { op: 'lookup', name: 'a.test' });
    guest.send(FRAME.end, 2);
    expect(answerOf(await guest.next(FRAME.message))).toEqual({ kind: 'address', ports: [80, 443] });
    await guest.next(FRAME.end);
    guest.send(FRAME.open, 4, { op: 'lookup', name: 'b.test' });
    guest.send(FRAME.end, 4);
    expect(answerOf(await guest.next(FRAME.message))).toEqual({ kind: 'absent' });
    await guest.next(FRAME.end);
    expect(egress.lookups).toEqual([
      { sandbox: SANDBOX, name: 'a.test' },
      { sandbox: SANDBOX, name: 'b.test' },
    ]);
    expect(connection.streams).toBe(0);
  });

  it('of a guest without a sandbox finds nothing', async () => {
    const egress = testEgress({ 'a.test:80': 1 });
    const { guest } = await connected(egress, () => undefined);
    guest.send(FRAME.open, 2, { op: 'lookup', name: 'a.test' });
    expect(answerOf(await guest.next(FRAME.message))).toEqual({ kind: 'absent' });
    guest.send(FRAME.open, 4, { op: 'egress', name: 'a.test', port: 80 });
    expect(answerOf(await guest.next(FRAME.reset))).toMatchObject({ code: 'unavailable' });
    expect(egress.lookups).toEqual([]);
    expect(egress.targets).toEqual([]);
  });

  it('that fails is reset', async () => {
    const egress: Egress = { ...testEgress(), lookup: () => Promise.reject(new Error('secret')) };
    const { guest } = await connected(egress);
    guest.send(FRAME.open, 2, { op: 'lookup', name: 'a.test' });
    const answer = answerOf(await guest.next(FRAME.reset));
    expect(answer).toMatchObject({ code: 'internal' });
    expect(JSON.stringify(answer)).not.toContain('secret');
  });
});

describe('a carried connection', () => {
  it('has its target, is accepted, and carries both ways until both have ended', async () => {
    const { guest, connection, target, carried } = await oneCarried();
    expect(target).toEqual({ name: 'a.test', port: 443 });
    carried.accept();
    expect(answerOf(await guest.next(FRAME.message))).toEqual({});
    guest.send(FRAME.data, 2, Buffer.from('ping'));
    expect((await once(carried.duplex, 'data'))[0].toString()).toBe('ping');
    carried.duplex.end('pong');
    expect((await guest.next(FRAME.data)).payload.toString()).toBe('pong');
    await guest.next(FRAME.end);
    guest.send(FRAME.data, 2, Buffer.from('after the half-close'));
    expect((await once(carried.duplex, 'data'))[0].toString()).toBe('after the half-close');
    const closed = once(carried.duplex, 'close');
    guest.send(FRAME.end, 2);
    await closed;
    expect(connection.streams).toBe(0);
    expect(connection.error).toBeUndefined();
  });

  it('is refused with a RESET that says why', async () => {
    const { guest, carried } = await oneCarried();
    carried.refuse(new CayError('permission_denied', 'The policy refuses it'));
    expect(answerOf(await guest.next(FRAME.reset))).toEqual({
      code: 'permission_denied',
      message: 'The policy refuses it',
    });
    expect(carried.duplex.destroyed).toBe(true);
    // What comes after has crossed the RESET.
    guest.send(FRAME.data, 2, Buffer.from('late'));
    carried.accept();
    carried.refuse(new Error('again'));
  });

  it('that the guest resets, or whose connection is lost, is destroyed with an error', async () => {
    for (const end of ['reset', 'lost'] as const) {
      const { guest, carried } = await oneCarried();
      const failed = once(carried.duplex, 'error');
      if (end === 'reset') guest.send(FRAME.reset, 2, { code: 'cancelled', message: 'The program is gone' });
      else guest.socket.destroy();
      expect((await failed)[0]).toBeInstanceOf(CayError);
      expect(carried.duplex.destroyed).toBe(true);
    }
  });

  it('needs no listener for its errors', async () => {
    const { guest, carried } = await oneCarried();
    guest.send(FRAME.reset, 2, { code: 'cancelled', message: 'The program is gone' });
    await vi.waitUntil(() => carried.duplex.destroyed);
  });

  it('waits for its reader: no more than its window is taken', async () => {
    const { guest, connection, carried } = await oneCarried();
    const credits: number[] = [];
    const onFrame = guest.onFrame;
    guest.onFrame = (frame) => {
      if (frame.type === FRAME.credit) credits.push(frame.payload.readUInt32BE(0));
      onFrame(frame);
    };
    guest.send(FRAME.data, 2, Buffer.alloc(STRICT_CREDIT, 1));
    await sleep(50);
    expect(credits).toEqual([]);
    const chunks: Buffer[] = [];
    carried.duplex.on('data', (chunk: Buffer) => chunks.push(chunk));
    await vi.waitUntil(() => Buffer.concat(chunks).length === STRICT_CREDIT);
    guest.send(FRAME.ping, 0, Buffer.from('x'));
    await guest.next(FRAME.pong);
    expect(credits.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(STRICT_CREDIT);
    expect(connection.error).toBeUndefined();
  });

  it('waits for the guest: no more than its credit is sent', async () => {
    const { guest, carried } = await oneCarried();
    let received = 0;
    guest.onFrame = (frame) => {
      if (frame.type === FRAME.data) received += frame.payload.length;
    };
    const bytes = Buffer.alloc(1 << 20, 2);
    const written = new Promise((resolve) => carried.duplex.write(bytes, resolve));
    await sleep(100);
    expect(received).toBeGreaterThanOrEqual(INITIAL_CREDIT);
    expect(received).toBeLessThan(INITIAL_CREDIT + 131_072 + 1);
    guest.credit(2, 1 << 20);
    await written;
    await vi.waitUntil(() => received === bytes.length);
  });

  it('does not keep the connection from being quiesced', async () => {
    const { connection } = await oneCarried();
    expect(await connection.whenIdle(10)).toBe(true);
  });

  it('carries any bytes in any pieces', async () => {
    const server = createServer((socket) => socket.pipe(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    closing.push(server);
    const egress = testEgress({ 'echo.test:7': (server.address() as AddressInfo).port });
    const { guest } = await connected(egress);
    let stream = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 20_000 }), { maxLength: 12 }), async (sizes) => {
        stream += 2;
        const id = stream;
        const pieces = sizes.map((size) => randomBytes(size));
        const back: Buffer[] = [];
        const over = Promise.withResolvers<void>();
        let credit = STRICT_CREDIT;
        let credited: (() => void) | undefined;
        guest.onFrame = (frame) => {
          if (frame.stream !== id) return;
          if (frame.type === FRAME.data) {
            back.push(frame.payload);
            guest.credit(id, frame.payload.length);
          }
          if (frame.type === FRAME.credit) {
            credit += frame.payload.readUInt32BE(0);
            credited?.();
          }
          if (frame.type === FRAME.end) over.resolve();
        };
        guest.send(FRAME.open, id, { op: 'egress', name: 'echo.test', port: 7 });
        for (const piece of pieces) {
          while (credit < piece.length) await new Promise<void>((resolve) => (credited = resolve));
          credit -= piece.length;
          guest.send(FRAME.data, id, piece);
        }
        guest.send(FRAME.end, id);
        await over.promise;
        const sum = (parts: Buffer[]) => createHash('sha256').update(Buffer.concat(parts)).digest('hex');
        expect(sum(back)).toBe(sum(pieces));
      }),
      { numRuns: 40 },
    );
  });
});

describe('a guest that lies', () => {
  const cut = async (lie: (guest: ScriptedGuest) => void, egress: Egress = held().egress) => {
    const { connection, guest } = await connected(egress);
    lie(guest);
    await connection.closed;
    expect(connection.error).toMatchObject({ details: { reason: 'protocol_violation' } });
  };

  it.each([1, 3, 0xffff_ffff])('is cut when it opens stream %i, which is the server’s', (id) =>
    cut((guest) => guest.send(FRAME.open, id, { op: 'lookup', name: 'a.test' })),
  );

  it('is cut when it uses a number again', () =>
    cut((guest) => {
      guest.send(FRAME.open, 4, { op: 'lookup', name: 'a.test' });
      guest.send(FRAME.open, 4, { op: 'lookup', name: 'a.test' });
    }));

  it.each(['', '.', 'a..b', 'A.test', 'a b', `${'a'.repeat(64)}.test`, 'é.test', 'a.test.', 7, null])(
    'is cut for the name %j',
    async (name) => {
      await cut((guest) => guest.send(FRAME.open, 2, { op: 'lookup', name }));
      await cut((guest) => guest.send(FRAME.open, 2, { op: 'egress', name, port: 80 }));
    },
  );

  it.each([
    { port: 80 },
    { name: 'a.test' },
    { name: 'a.test', port: 0 },
    { name: 'a.test', port: 65_536 },
    { name: 'a.test', port: '80' },
    { address: 'a.test', port: 80 },
    { address: '1.2.3', port: 80 },
    { address: 'x'.repeat(5000), port: 80 },
  ])('is cut for the target $name$address $port', (target) =>
    cut((guest) => guest.send(FRAME.open, 2, { op: 'egress', ...target })),
  );

  it('is cut when it opens more streams than a guest has', async () => {
    const { egress, connects } = held();
    await cut((guest) => {
      for (let id = 2; id <= 200_000; id += 2)
        guest.send(FRAME.open, id, { op: 'egress', name: 'a.test', port: 1 });
    }, egress);
    expect(connects.length).toBeLessThanOrEqual(4096);
    await vi.waitUntil(() => connects.every(({ carried }) => carried.duplex.destroyed));
  });

  it('is cut when it looks up more names than a guest does', async () => {
    let lookups = 0;
    const egress: Egress = {
      ...held().egress,
      lookup: async () => {
        lookups++;
        return { kind: 'absent' };
      },
    };
    await cut((guest) => {
      for (let id = 2; id <= 40_000; id += 2) {
        guest.send(FRAME.open, id, { op: 'lookup', name: 'a.test' });
        guest.send(FRAME.end, id);
      }
    }, egress);
    expect(lookups).toBeLessThan(6_000);
  });

  it('is cut when it overdraws the credit of a stream of its own', () =>
    cut((guest) => {
      guest.send(FRAME.open, 2, { op: 'egress', name: 'a.test', port: 1 });
      guest.send(FRAME.data, 2, Buffer.alloc(STRICT_CREDIT + 1));
    }));

  it('is cut when it sends a message on a carried connection', () =>
    cut(
      (guest) => {
        guest.send(FRAME.open, 2, { op: 'egress', name: 'a.test', port: 1 });
        guest.send(FRAME.message, 2, { hello: true });
      },
      { ...held().egress, connect: (_id, _target, { duplex }) => void (duplex as Duplex).resume() },
    ));

  it('that opens connections too fast has them refused', () => {
    const streams = new StreamsOfGuest({ egress: (_request, stream) => stream.end() });
    const codes = new Map<string, number>();
    const host: StreamHost = {
      error: undefined,
      congested: false,
      send(type, _stream, payload) {
        const code = type === FRAME.reset ? decodeCborMap(Buffer.from(payload!))['code'] : 'served';
        const said = typeof code === 'string' ? code : 'unknown';
        codes.set(said, (codes.get(said) ?? 0) + 1);
      },
      onceDrained() {},
      forget: (id) => streams.closed(id),
      mayWiden: () => false,
      onStreamChange() {},
      fail(error) {
        throw error;
      },
    };
    const request = encodeCbor({ op: 'egress', name: 'a.test', port: 1 });
    for (let id = 2; id <= 20_000; id += 2) {
      streams.open(id, request, () => {
        const stream = new GuestStream(host, id, { strict: true });
        stream.peerEnded();
        return stream;
      });
    }
    expect(codes.get('served')).toBeGreaterThanOrEqual(4096);
    expect(codes.get('resource_exhausted')).toBeGreaterThan(0);
  });

  it('random requests never end in anything but an answer or a cut', async () => {
    const value = fc.oneof(
      fc.string(),
      fc.integer(),
      fc.constant('a.test'),
      fc.constant(443),
      fc.constant(null),
      fc.uint8Array({ maxLength: 20 }),
      fc.array(fc.integer(), { maxLength: 3 }),
    );
    const key = fc.constantFrom('name', 'address', 'port', 'process', 'other', '__proto__');
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('lookup', 'egress', 'exec', 'toString', '__proto__'),
        fc.dictionary(key, value),
        async (op, request) => {
          const { connection, guest } = await connected(testEgress());
          guest.send(FRAME.open, 2, { ...request, op } as never);
          const answered = Promise.race([guest.next(FRAME.reset), guest.next(FRAME.message)]);
          await Promise.race([answered, connection.closed]);
          connection.close();
        },
      ),
      { numRuns: 100 },
    );
  });
});
