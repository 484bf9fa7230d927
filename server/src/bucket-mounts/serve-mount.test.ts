/** A pump's connection with bytes that no kernel sends. */
import { constants } from 'node:os';
import { Duplex } from 'node:stream';
import type { Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Semaphore } from '../lib/semaphore.ts';
import { Opcode } from './fuse/opcodes.ts';
import { framesOf, serveMount } from './serve-mount.ts';
import { frame, message, named, OPCODES } from './testing/messages.ts';
import { openTestFiles } from './testing/open-files.ts';

const { errno } = constants;

interface Answer {
  error: number;
  body: Buffer;
}

/** Sends these bytes in these pieces, and resolves the answers by number. */
async function served(
  world: Awaited<ReturnType<typeof openTestFiles>>,
  pieces: readonly Buffer[],
): Promise<{ answers: Map<bigint, Answer>; errors: unknown[] }> {
  const answers = new Map<bigint, Answer>();
  const errors: unknown[] = [];
  let coming = Buffer.alloc(0);
  const socket = new Duplex({
    read() {},
    write(chunk: Buffer, _, done) {
      coming = Buffer.concat([coming, chunk]);
      while (coming.length >= 16 && coming.length >= coming.readUInt32LE(0)) {
        const size = coming.readUInt32LE(0);
        const unique = coming.readBigUInt64LE(8);
        expect(answers.has(unique)).toBe(false);
        answers.set(unique, { error: -coming.readInt32LE(4) || 0, body: coming.subarray(16, size) });
        coming = coming.subarray(size);
      }
      done();
    },
  }) as unknown as Socket;
  const onError = (error: unknown) => void errors.push(error);
  const serving = serveMount(socket, framesOf(socket), world.files, { turns: new Semaphore(8), onError });
  for (const piece of pieces) socket.push(piece);
  await new Promise((resolve) => setTimeout(resolve, 5));
  for (let wait = 0; wait < 20 && world.files.spools.left().length > 0; wait++)
    await new Promise((resolve) => setTimeout(resolve, 1));
  socket.push(null);
  await serving;
  return { answers, errors };
}

describe('the connection of a pump', () => {
  it('answers every message that has an answer, whatever is in it, and throws nothing', async () => {
    const body = fc.oneof(
      fc.uint8Array({ maxLength: 120 }).map((bytes) => Buffer.from(bytes)),
      fc
        .tuple(fc.uint8Array({ maxLength: 40 }), fc.constantFrom('a', 'd', 'd/..', '', 'x'.repeat(300)))
        .map(([bytes, name]) => Buffer.concat([Buffer.from(bytes), named(name, name)])),
    );
    const one = fc.record({
      opcode: fc.constantFrom(...OPCODES),
      node: fc.oneof(fc.bigInt(0n, 5n), fc.bigInt(0n, 2n ** 64n - 1n)),
      body,
      flags: fc.nat(3),
    });
    const silent: number[] = [Opcode.forget, Opcode.batchForget, Opcode.interrupt, Opcode.destroy];
    await fc.assert(
      fc.asyncProperty(fc.array(one, { maxLength: 12 }), async (all) => {
        await using world = await openTestFiles();
        world.bucket.objects.set('a', Buffer.from('content'));
        world.bucket.objects.set('d/b', Buffer.from('content'));
        const frames = all.map(({ opcode, node, body: bytes, flags }, index) =>
          frame(message(opcode, { unique: BigInt(index + 1), node, body: bytes }), flags),
        );
        const { answers, errors } = await served(world, frames);
        expect(errors).toEqual([]);
        const expected = all.flatMap(({ opcode }, index) =>
          silent.includes(opcode) ? [] : [BigInt(index + 1)],
        );
        expect(new Set(answers.keys())).toEqual(new Set(expected));
        for (const { error } of answers.values()) expect(error).toBeGreaterThanOrEqual(0);
        // The files of others are not touched by what makes no sense.
        expect(world.files.spools.bytes).toBeLessThan(1024 * 1024);
      }),
      { numRuns: 150 },
    );
  });

  it('takes frames in any pieces', async () => {
    await using world = await openTestFiles();
    world.bucket.objects.set('a', Buffer.from('content'));
    const all = Buffer.concat(
      Array.from({ length: 5 }, (_, index) =>
        frame(message(Opcode.lookup, { unique: BigInt(index + 1), body: named('a') })),
      ),
    );
    for (const size of [1, 3, 7, 41, all.length]) {
      const pieces = [];
      for (let at = 0; at < all.length; at += size) pieces.push(all.subarray(at, at + size));
      const { answers } = await served(world, pieces);
      expect([...answers.values()].map(({ error }) => error)).toEqual([0, 0, 0, 0, 0]);
    }
  });

  it('ends with a frame that is too long or too short, and keeps none of it', async () => {
    for (const size of [0, 7, 1024 * 1024 + 128 * 1024 + 1, 0xffff_ffff]) {
      await using world = await openTestFiles();
      const bytes = Buffer.alloc(16);
      bytes.writeUInt32LE(size, 0);
      const { answers, errors } = await served(world, [bytes]);
      expect(answers.size).toBe(0);
      expect(errors).toEqual([]);
    }
  });

  it('ends with bytes of any kind', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), async (bytes) => {
        await using world = await openTestFiles();
        expect((await served(world, [Buffer.from(bytes)])).errors).toEqual([]);
      }),
      { numRuns: 50 },
    );
  });

  it('refuses what a bucket has none of, and a message whose data is cut off', async () => {
    await using world = await openTestFiles();
    world.bucket.objects.set('a', Buffer.from('content'));
    const { attributes } = await world.files.open.create(1, 'a', 1);
    const write = Buffer.alloc(40);
    write.writeUInt32LE(1_000, 16);
    const far = Buffer.alloc(41);
    far.writeBigUInt64LE(2n ** 63n - 1n, 8);
    far.writeUInt32LE(1, 16);
    const node = BigInt(attributes.node);
    const { answers } = await served(world, [
      frame(message(Opcode.symlink, { unique: 1n, body: named('x', 'y') })),
      frame(message(Opcode.link, { unique: 2n, body: Buffer.concat([Buffer.alloc(8), named('x')]) })),
      frame(message(Opcode.write, { unique: 3n, node, body: write })),
      frame(message(Opcode.write, { unique: 4n, node, body: far })),
      frame(message(22, { unique: 5n, node, body: named('user.x') })),
      frame(message(Opcode.getattr, { unique: 6n, node: 99n })),
      frame(message(Opcode.getattr, { unique: 7n, node: 2n ** 64n - 1n })),
    ]);
    const numbers = [...answers].sort(([one], [other]) => Number(one - other)).map(([, { error }]) => error);
    const { EOPNOTSUPP, EINVAL, EFBIG, ENOSYS, ESTALE } = errno;
    expect(numbers).toEqual([EOPNOTSUPP, EOPNOTSUPP, EINVAL, EFBIG, ENOSYS, ESTALE, ESTALE]);
  });

  it('holds no more than it can answer', async () => {
    await using world = await openTestFiles();
    world.bucket.objects.set('a', Buffer.from('content'));
    world.bucket.fault = () => new Promise(() => {});
    const frames = Array.from({ length: 2_100 }, (_, index) =>
      frame(message(Opcode.lookup, { unique: BigInt(index + 1), body: named('a') })),
    );
    const { answers } = await served(world, [Buffer.concat(frames)]);
    expect(answers.size).toBe(2_100 - 2_048);
    for (const { error } of answers.values()) expect(error).toBe(errno.EIO);
  });
});
