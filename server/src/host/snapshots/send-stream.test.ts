import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { crc32c } from './crc32c.ts';
import { readSendStream, type SendCommand } from './send-stream.ts';

const HEADER = Buffer.concat([Buffer.from('btrfs-stream\0'), u32(1)]);

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return bytes;
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function encode(command: number, attributes: [number, Buffer][]): Buffer {
  const body = Buffer.concat(attributes.flatMap(([type, data]) => [u16(type), u16(data.length), data]));
  const whole = Buffer.concat([u32(body.length), u16(command), u32(0), body]);
  whole.writeUInt32LE(crc32c(whole), 6);
  return whole;
}

const END = encode(21, []);
const path = (text: string): Buffer => Buffer.from(text, 'latin1');

function bytesOf(command: SendCommand): Buffer {
  if (command.kind === 'make') return encode(3, [[15, path(command.path)]]);
  if (command.kind === 'rename')
    return encode(9, [
      [15, path(command.path)],
      [16, path(command.to)],
    ]);
  if (command.kind === 'link')
    return encode(10, [
      [15, path(command.path)],
      [17, path(command.target)],
    ]);
  if (command.kind === 'unlink') return encode(11, [[15, path(command.path)]]);
  if (command.kind === 'attributes')
    return encode(18, [
      [15, path(command.path)],
      [5, u64(0o644)],
    ]);
  return encode(22, [
    [15, path(command.path)],
    [18, u64(command.offset)],
    [4, u64(command.length)],
  ]);
}

async function* pieces(bytes: Buffer, sizes: number[]): AsyncGenerator<Buffer> {
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes.length === 0 ? bytes.length : sizes[turn % sizes.length]!;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

const read = (bytes: Buffer, sizes: number[] = []): Promise<SendCommand[]> =>
  Array.fromAsync(readSendStream(pieces(bytes, sizes)));

const name = fc
  .uint8Array({ minLength: 1, maxLength: 300 })
  .map((bytes) => Buffer.from(bytes).toString('latin1'));
const whole = fc.nat({ max: 2 ** 31 });
const command: fc.Arbitrary<SendCommand> = fc.oneof(
  fc.record({ kind: fc.constant('make' as const), path: name }),
  fc.record({ kind: fc.constant('rename' as const), path: name, to: name }),
  fc.record({ kind: fc.constant('link' as const), path: name, target: name }),
  fc.record({ kind: fc.constant('unlink' as const), path: name }),
  fc.record({ kind: fc.constant('attributes' as const), path: name }),
  fc.record({ kind: fc.constant('data' as const), path: name, offset: whole, length: whole }),
);

describe('readSendStream', () => {
  it('reads every command, however the bytes are cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(command, { maxLength: 20 }),
        fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1 }),
        async (commands, sizes) => {
          expect(await read(Buffer.concat([HEADER, ...commands.map(bytesOf), END]), sizes)).toEqual(commands);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('rejects a stream in which any byte was changed', async () => {
    const stream = Buffer.concat([
      HEADER,
      bytesOf({ kind: 'rename', path: 'one', to: 'two' }),
      bytesOf({ kind: 'make', path: 'x' }),
      END,
    ]);
    await fc.assert(
      fc.asyncProperty(
        fc.nat({ max: stream.length - 1 }),
        fc.integer({ min: 1, max: 255 }),
        async (at, mask) => {
          const damaged = Buffer.from(stream);
          damaged[at]! ^= mask;
          await expect(read(damaged)).rejects.toMatchObject({ code: 'internal' });
        },
      ),
    );
  });

  it('rejects a stream that is cut off anywhere', async () => {
    const stream = Buffer.concat([HEADER, bytesOf({ kind: 'make', path: 'x' }), END]);
    for (let length = 0; length < stream.length; length++) {
      await expect(read(stream.subarray(0, length))).rejects.toMatchObject({ code: 'internal' });
    }
  });

  it('rejects any other bytes without keeping them', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 500 }), async (bytes) => {
        await expect(read(Buffer.concat([HEADER, bytes]))).rejects.toMatchObject({ code: 'internal' });
      }),
    );
    await expect(read(Buffer.concat([HEADER, u32(2 ** 31), u16(3), u32(0)]))).rejects.toThrow(
      /2147483648 bytes/,
    );
  });

  it.each([
    ['a command without its path', [encode(3, [])]],
    ['a command without its offset', [encode(22, [[15, path('x')]])]],
    [
      'a number that is too large',
      [
        encode(22, [
          [15, path('x')],
          [18, Buffer.alloc(8, 0xff)],
          [4, u64(1)],
        ]),
      ],
    ],
    ['an unknown command', [encode(99, [[15, path('x')]])]],
    ['what comes after the end', [END, END]],
  ])('rejects %s', async (_, parts) => {
    await expect(read(Buffer.concat([HEADER, ...parts, END]))).rejects.toMatchObject({ code: 'internal' });
  });

  it('rejects another version', async () => {
    await expect(read(Buffer.concat([Buffer.from('btrfs-stream\0'), u32(2), END]))).rejects.toThrow(
      /version 2/,
    );
  });
});

describe('crc32c', () => {
  it('gives the known sum of the digits', () => {
    expect((crc32c(Buffer.from('123456789'), 0xffffffff) ^ 0xffffffff) >>> 0).toBe(0xe3069283);
  });
});
