import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeEnvelopes, encodeEnd, encodeEnvelope } from './envelope.ts';

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function decoded(bytes: Buffer, size = 7, maxBytes = 1_000_000): Promise<Buffer[]> {
  return Array.fromAsync(decodeEnvelopes(inPieces(bytes, size), maxBytes));
}

describe('decodeEnvelopes()', () => {
  it('gives back what was encoded, however it was cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ minLength: 1 }).map((bytes) => Buffer.from(bytes))),
        fc.integer({ min: 1, max: 64 }),
        fc.boolean(),
        async (values, size, end) => {
          const bytes = Buffer.concat([
            ...values.map((value) => encodeEnvelope(value)),
            ...(end ? [encodeEnd()] : []),
          ]);
          expect(await decoded(bytes, size)).toEqual(values);
        },
      ),
    );
  });

  it('either decodes or rejects any bytes at all', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => {
        const result = await decoded(Buffer.from(bytes)).catch((error: unknown) => error);
        expect(Array.isArray(result) || (result as { name: string }).name === 'CayError').toBe(true);
      }),
    );
  });

  it('asks before it gives a large message, and gives empty ones', async () => {
    const asked: number[] = [];
    const large = encodeEnvelope(Buffer.alloc(100_000));
    const all = decodeEnvelopes(
      inPieces(Buffer.concat([encodeEnvelope(Buffer.alloc(0)), large]), 7000),
      1e6,
      (bytes) => asked.push(bytes),
    );
    expect((await Array.fromAsync(all)).map(({ length }) => length)).toEqual([0, 100_000]);
    expect(asked).toEqual([100_000]);
  });

  it('rejects a message that is too large before it has arrived', async () => {
    const head = Buffer.from([0, 0xff, 0xff, 0xff, 0xff]);
    await expect(decoded(head)).rejects.toMatchObject({ code: 'resource_exhausted' });
  });

  it('rejects compressed and cut messages', async () => {
    await expect(decoded(encodeEnvelope(Buffer.from('{}'), 1))).rejects.toMatchObject({
      code: 'unsupported',
    });
    await expect(decoded(encodeEnvelope(Buffer.from('{"a":1}')).subarray(0, -1))).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});
