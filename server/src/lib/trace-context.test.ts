import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { childOf, formatTraceparent, parseTraceparent } from './trace-context.ts';

const hex = (length: number) =>
  fc.stringMatching(new RegExp(`^[0-9a-f]{${length}}$`)).filter((text) => !/^0+$/.test(text));

describe('traceparent', () => {
  it('is read as it is written', () => {
    fc.assert(
      fc.property(hex(32), hex(16), fc.boolean(), (traceId, spanId, sampled) => {
        const context = { traceId, spanId, sampled };
        expect(parseTraceparent(formatTraceparent(context))).toEqual(context);
        const child = childOf(context);
        expect(child).toMatchObject({ traceId, sampled });
        expect(child.spanId).toMatch(/^[0-9a-f]{16}$/);
      }),
    );
  });

  it('of any other shape counts as absent', () => {
    const [trace, span] = ['a'.repeat(32), 'b'.repeat(16)];
    for (const text of [
      undefined,
      '',
      `ff-${trace}-${span}-01`,
      `00-${'0'.repeat(32)}-${span}-01`,
      `00-${trace}-${'0'.repeat(16)}-01`,
      `00-${trace.toUpperCase()}-${span}-01`,
      `00-${trace}-${span}-01-more`,
      `00-${trace}-${span}`,
    ]) {
      expect(parseTraceparent(text)).toBeUndefined();
    }
    expect(parseTraceparent(`cc-${trace}-${span}-01-of-a-later-version`)).toEqual({
      traceId: trace,
      spanId: span,
      sampled: true,
    });
    fc.assert(fc.property(fc.string(), (text) => parseTraceparent(text) === undefined));
  });
});
