import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isCayError } from '@cay/sdk/protocol';
import { decodeCbor, decodeCborMap, encodeCbor, type CborValue } from './cbor.ts';

const leaf = fc.oneof(
  fc.constantFrom(null, true, false),
  fc.maxSafeInteger(),
  fc.string({ unit: 'binary' }),
  fc.string({ unit: 'grapheme', maxLength: 300 }),
  fc.uint8Array({ maxLength: 300 }),
);
const value = (depth: number): fc.Arbitrary<CborValue> =>
  depth === 0
    ? leaf
    : fc.oneof(
        { weight: 3, arbitrary: leaf },
        fc.array(value(depth - 1), { maxLength: 5 }),
        fc.dictionary(fc.string(), value(depth - 1), { maxKeys: 5 }),
      );

/** Buffers and maps without prototype compare as what they hold. */
function plain(one: CborValue | undefined): unknown {
  if (one instanceof Uint8Array) return { bytes: [...one] };
  if (Array.isArray(one)) return one.map(plain);
  if (one === null || typeof one !== 'object') return one;
  return new Map(Object.keys(one).map((key) => [key, plain(one[key])]));
}

const bytes = (...list: number[]) => Uint8Array.from(list);

describe('cbor', () => {
  it('gives back every value that it encodes', () => {
    fc.assert(
      fc.property(value(4), (one) => {
        expect(plain(decodeCbor(encodeCbor(one)))).toEqual(plain(one));
      }),
    );
  });

  it('answers random bytes with a value or with "unavailable", and nothing else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (noise) => {
        try {
          decodeCbor(noise);
        } catch (error) {
          expect(isCayError(error, 'unavailable')).toBe(true);
        }
      }),
      { numRuns: 5000 },
    );
  });

  it('refuses every proper beginning of a value', () => {
    fc.assert(
      fc.property(value(3), fc.nat(), (one, cut) => {
        const whole = encodeCbor(one);
        expect(() => decodeCbor(whole.subarray(0, cut % whole.length))).toThrow();
      }),
    );
  });

  it.each([
    ['an integer of 2^53', bytes(0x1b, 0, 0x20, 0, 0, 0, 0, 0, 0)],
    ['an integer of -2^53', bytes(0x3b, 0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)],
    ['a float', bytes(0xf9, 0x3c, 0)],
    ['undefined', bytes(0xf7)],
    ['a tag', bytes(0xc0, 0x00)],
    ['an indefinite array', bytes(0x9f, 0xff)],
    ['a key that is a number', bytes(0xa1, 0x01, 0x01)],
    ['text that is not UTF-8', bytes(0x61, 0xff)],
    ['an array that claims four billion items', bytes(0x9a, 0xff, 0xff, 0xff, 0xff)],
    ['a byte string that claims 2^52 bytes', bytes(0x5b, 0, 0x10, 0, 0, 0, 0, 0, 0)],
    ['two values', bytes(0x01, 0x02)],
    ['nine levels of arrays around a value', bytes(...Array<number>(9).fill(0x81), 0x01)],
    ['a thousand levels of arrays', bytes(...Array<number>(1000).fill(0x81), 0x01)],
  ])('refuses %s', (_, payload) => {
    expect(() => decodeCbor(payload)).toThrow(/connection to the guest was ended/);
  });

  it('takes eight levels of arrays', () => {
    expect(decodeCbor(bytes(...Array<number>(8).fill(0x81), 0x01))).toEqual([[[[[[[[1]]]]]]]]);
  });

  it('takes "__proto__" as a key like any other, and the first of two equal keys', () => {
    const map = decodeCborMap(
      bytes(0xa2, 0x69, ...Buffer.from('__proto__'), 0x01, 0x69, ...Buffer.from('__proto__'), 0x02),
    );
    expect(Object.keys(map)).toEqual(['__proto__']);
    expect(map['__proto__']).toBe(1);
  });

  it('leaves out keys without a value and refuses fractions', () => {
    expect(encodeCbor({ a: undefined, b: 1 })).toEqual(encodeCbor({ b: 1 }));
    expect(() => encodeCbor({ a: 0.5 })).toThrow('"0.5"');
  });

  it('refuses more values than a message may have', () => {
    const maps = (count: number) =>
      Buffer.concat([Buffer.from([0x9a, 0, 0, 0, 0]), Buffer.alloc(count, 0xa0)]);
    const many = maps(200_000);
    many.writeUInt32BE(200_000, 1);
    expect(() => decodeCbor(many)).toThrow(/more than 131072 values/);
  });

  it('refuses a payload that is not a map where there must be one', () => {
    expect(() => decodeCborMap(encodeCbor([1]))).toThrow('not a map');
  });
});
