import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BoundedBytes } from './bounded-bytes.ts';
import { JsonList, JsonText, isLargeJson, jsonPieces } from './json-pieces.ts';

/** The same bytes, added in pieces of that size. */
function collected(bytes: Buffer, size: number): BoundedBytes {
  const all = new BoundedBytes(Infinity);
  for (let at = 0; at < bytes.length; at += size) all.add(bytes.subarray(at, at + size));
  return all;
}
const whole = (value: object) => [...jsonPieces(value)].join('');

describe('JSON in pieces', () => {
  it('is what JSON.stringify gives', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.uint8Array({ maxLength: 2000 }),
        fc.integer({ min: 1, max: 500 }),
        (object, bytes, size) => {
          const list = new JsonList();
          for (let item = 0; item < size % 5; item++) list.add(object);
          const value = {
            ...object,
            text: new JsonText(collected(Buffer.from(bytes), size), 'utf8'),
            base64: new JsonText(collected(Buffer.from(bytes), size), 'base64'),
            list,
          };
          const expected = JSON.parse(JSON.stringify(value)) as unknown;
          expect(JSON.parse(whole(value))).toEqual(expected);
        },
      ),
    );
    expect(whole({})).toBe('{}');
    expect(whole({ a: undefined, b: [] })).toBe('{"b":[]}');
  });

  it('cuts neither characters nor base64 in two', () => {
    const bytes = Buffer.from('a😀ü'.repeat(400_000));
    for (const encoding of ['utf8', 'base64'] as const) {
      expect(JSON.parse(whole({ text: new JsonText(collected(bytes, 50_000), encoding) }))).toEqual({
        text: bytes.toString(encoding),
      });
    }
  });

  it('has small pieces, also of bytes that become six characters each', () => {
    const entries = new JsonList();
    for (let index = 0; index < 10_000; index++) entries.add({ path: 'x'.repeat(1000) });
    const value = {
      entries,
      text: new JsonText(collected(Buffer.alloc(4 * 1024 * 1024), 65_536), 'utf8'),
      list: Array.from({ length: 10_000 }, () => 'x'.repeat(1000)),
    };
    expect(isLargeJson(value)).toBe(true);
    for (const piece of jsonPieces(value)) expect(piece.length).toBeLessThan(200_000);
  });
});
