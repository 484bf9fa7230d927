import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LabelsSchema } from '@cay/sdk/protocol';
import { parseMetadataFilter, toLabels, toMetadata } from './labels.ts';

const name = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 16 }).map((text) => text.toWellFormed());
const key = fc.oneof(
  { weight: 9, arbitrary: name },
  { weight: 1, arbitrary: fc.constantFrom('__proto__', 'constructor') },
);
const metadata = fc.dictionary(
  key,
  fc.string({ unit: 'grapheme', maxLength: 50 }).map((text) => text.toWellFormed()),
  { noNullPrototype: true },
);

describe('toLabels()', () => {
  it('makes labels of any metadata, which come back as they were', () => {
    fc.assert(
      fc.property(metadata, (given) => {
        const labels = toLabels(given);
        expect(LabelsSchema.safeParse(labels).success).toBe(true);
        expect(toMetadata(labels)).toEqual(given);
      }),
    );
  });

  it('keeps plain keys readable, and does not let clients set reserved labels', () => {
    expect(toLabels({ owner: 'me' })).toEqual({ owner: 'me' });
    expect(Object.keys(toLabels({ 'e2b/public-traffic': 'true' }))).not.toContain('e2b/public-traffic');
    expect(toMetadata({ 'e2b/public-traffic': 'true', owner: 'me' })).toEqual({ owner: 'me' });
  });

  it('rejects more and longer ones than labels hold', () => {
    expect(() => toLabels({ a: 'x'.repeat(1025) })).toThrow('Metadata');
    expect(() => toLabels({ ['ü'.repeat(100)]: 'x' })).toThrow('Metadata');
    expect(() =>
      toLabels(Object.fromEntries(Array.from({ length: 61 }, (_, index) => [`k${index}`, '']))),
    ).toThrow('Metadata');
  });
});

describe('parseMetadataFilter()', () => {
  it('reads what the clients send', () => {
    fc.assert(
      fc.property(metadata, (given) => {
        const encoded = Object.entries(given).map(([name, value]): [string, string] => [
          encodeURIComponent(name),
          encodeURIComponent(value),
        ]);
        expect(parseMetadataFilter(new URLSearchParams(encoded).toString())).toEqual(given);
      }),
    );
  });

  it('rejects what is not pairs, or not well encoded', () => {
    for (const text of ['key', '=value', 'a=%zz'])
      expect(() => parseMetadataFilter(text)).toThrow('etadata filter');
  });
});
