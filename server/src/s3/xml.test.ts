import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { childrenOf, escaped, parseXml, textOf } from './xml.ts';

describe('parseXml()', () => {
  it('reads elements and text, whatever else is around them', () => {
    const document = parseXml(
      '<?xml version="1.0"?>\n<!-- > < -->\n<s3:List xmlns="x"><A/><B a="b">1 &lt; &#50;<![CDATA[<&>]]></B ><C></C></s3:List>\n',
    );
    expect(document?.name).toBe('List');
    expect(textOf(document, 'B')).toBe('1 < 2<&>');
    expect(childrenOf(document, 'A')).toHaveLength(1);
    expect(textOf(document, 'C')).toBe('');
  });

  it.each(['', 'x', '<a>', '<a></b>', '</a>', '<a/><b/>', '<a', '<!--', '<a><![CDATA[</a>', '<1/>', '<>'])(
    'takes %j for no document',
    (text) => {
      expect(parseXml(text)).toBeUndefined();
    },
  );

  it.each([
    ['a name that does not end', (length: number) => `<${'a'.repeat(length)}`],
    ['names that do not end', (length: number) => '<a'.repeat(length / 2)],
    ['comments that do not end', (length: number) => '<!--'.repeat(length / 4)],
    ['sections that do not end', (length: number) => '<![CDATA['.repeat(length / 9)],
    ['declarations that do not end', (length: number) => '<?a '.repeat(length / 4)],
    ['an attribute that does not end', (length: number) => `<a ${'/'.repeat(length)}`],
    ['references that are none', (length: number) => `<a>${'&#'.repeat(length / 2)}</a>`],
    ['elements without end', (length: number) => '<a>'.repeat(length / 3)],
    ['empty elements', (length: number) => `<a>${'<b/>'.repeat(length / 4)}</a>`],
  ])('reads 16 MiB of %s in a moment', (_name, make) => {
    const text = make(16 << 20);
    const began = performance.now();
    parseXml(text);
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  it('gives any text back that was escaped, and never throws', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const parsed = parseXml(`<a>${escaped(text)}</a>`);
        expect(parsed?.text).toBe(text);
      }),
    );
    const piece = fc.constantFrom(
      '<',
      '>',
      '/',
      '!',
      '--',
      '<![CDATA[',
      ']]>',
      '?',
      'a',
      ':',
      ' ',
      '&#x41;',
      '&lt;',
    );
    fc.assert(fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => void parseXml(pieces.join(''))));
  });
});
