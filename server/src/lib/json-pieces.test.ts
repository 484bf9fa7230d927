import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JsonText, isLargeJson, jsonPieces } from './json-pieces.ts';

const whole = (value: object) => [...jsonPieces(value)].join('');

describe('JSON in pieces', () => {
  it('is what JSON.stringify gives', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.uint8Array({ maxLength: 2000 }),
        (object, bytes) => {
          const value = {
            ...object,
            text: new JsonText(Buffer.from(bytes), 'utf8'),
            base64: new JsonText(Buffer.from(bytes), 'base64'),
          };
          expect(JSON.parse(whole(value))).toEqual(JSON.parse(JSON.stringify(value)));
        },
      ),
    );
    expect(whole({})).toBe('{}');
    expect(whole({ a: undefined, b: [] })).toBe('{"b":[]}');
  });

  it('cuts neither characters nor base64 in two', () => {
    const bytes = Buffer.from('a😀ü'.repeat(20_000));
    for (const encoding of ['utf8', 'base64'] as const) {
      expect(JSON.parse(whole({ text: new JsonText(bytes, encoding) }))).toEqual({
        text: bytes.toString(encoding),
      });
    }
  });

  it('has small pieces, also of bytes that become six characters each', () => {
    const value = {
      text: new JsonText(Buffer.alloc(4 * 1024 * 1024), 'utf8'),
      list: Array.from({ length: 10_000 }, () => 'x'.repeat(1000)),
    };
    expect(isLargeJson(value)).toBe(true);
    for (const piece of jsonPieces(value)) expect(piece.length).toBeLessThan(200_000);
  });
});
