import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TooManyValues, parsePieces } from './parse-json.ts';

function parsed(text: string | Buffer, mostValues?: number): { value: unknown; pieces: number } {
  const parsing = parsePieces(Buffer.from(text), mostValues);
  for (let pieces = 1; ; pieces++) {
    const step = parsing.next();
    if (step.done) return { value: step.value, pieces };
  }
}

/** The value, or that there is none. */
function outcome(parse: () => unknown): unknown {
  try {
    return { value: parse() };
  } catch (error) {
    return error instanceof SyntaxError ? 'no JSON' : error;
  }
}

describe('JSON that is parsed in pieces', () => {
  it('is what JSON.parse gives', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), fc.nat(3), (value, spaces) => {
        const text = JSON.stringify(value, null, spaces);
        expect(parsed(text).value).toEqual(JSON.parse(text));
      }),
    );
  });

  it('fails where JSON.parse fails', () => {
    const token = fc.constantFrom(
      ...[
        '{',
        '}',
        '[',
        ']',
        ',',
        ':',
        '"a"',
        '"',
        '\\',
        '1',
        '-',
        '1e5',
        '01',
        'true',
        'nul',
        ' ',
        '\n',
        'é',
        '\u0001',
      ],
      ...['"\\u00e9"', '"\\', '"__proto__"', '\ufeff', '.5', '-0', '\u00a0'],
    );
    fc.assert(
      fc.property(fc.array(token, { maxLength: 12 }), (tokens) => {
        const text = tokens.join('');
        expect(outcome(() => parsed(text).value)).toEqual(outcome(() => JSON.parse(text)));
      }),
      { numRuns: 3000 },
    );
    for (const text of ['', ' ', '[1,]', '{"a":1,}', '{,}', '[', '{"a"', '"a', '1 2', '[]]', "{'a':1}"])
      expect(outcome(() => parsed(text).value)).toBe('no JSON');
  });

  it('has keys that are only keys, and the last of those that come twice', () => {
    const text = '{"__proto__":{"a":1},"constructor":2,"b":1,"b":2,"1":0}';
    const value = parsed(text).value as Record<string, unknown>;
    expect(value).toEqual(JSON.parse(text));
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(Object.keys(value)).toEqual(Object.keys(JSON.parse(text) as object));
  });

  it('reads bytes that are no UTF-8 as JSON.parse would', () => {
    const bytes = Buffer.concat([Buffer.from('["a'), Buffer.from([0xe2, 0x22]), Buffer.from(',"\\"ü"]')]);
    expect(parsed(bytes).value).toEqual(JSON.parse(bytes.toString()));
  });

  it('takes large texts in many pieces, whatever they are made of', () => {
    const texts = [
      JSON.stringify(Array.from({ length: 48 }, () => 'a'.repeat(131_071))),
      JSON.stringify(Array.from({ length: 50_000 }, (_, index) => ({ index }))),
      `[${' '.repeat(4_000_000)}]`,
      `${'['.repeat(90_000)}${']'.repeat(90_000)}`,
    ];
    for (const text of texts) expect(parsed(text).pieces).toBeGreaterThan(25);
  });

  it('stops at more values than are allowed', () => {
    expect(() => parsed(`[${'[],'.repeat(5_000_000)}[]]`, 100_000)).toThrow(TooManyValues);
    expect(parsed('[1,[2],{"a":3}]', 6).value).toEqual([1, [2], { a: 3 }]);
  });
});
