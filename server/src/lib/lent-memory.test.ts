import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { giveBack, keep, lend } from './lent-memory.ts';

const large = (bytes = 65_536) => Buffer.from(new ArrayBuffer(bytes));
const isFreed = (buffer: Buffer) => (buffer.buffer as ArrayBuffer).detached;

describe('giveBack()', () => {
  it('frees a lent buffer', () => {
    const buffer = large();
    lend(buffer);
    expect(isFreed(buffer)).toBe(false);
    giveBack(buffer);
    expect(isFreed(buffer)).toBe(true);
    expect(buffer.length).toBe(0);
  });

  it('leaves alone what was not lent', () => {
    const buffer = large();
    giveBack(buffer);
    expect(isFreed(buffer)).toBe(false);
  });

  it('leaves alone what is small, or a part of something larger', () => {
    const [small, whole] = [large(1000), large()];
    lend(small);
    giveBack(small);
    const part = whole.subarray(10, 40_000);
    lend(part);
    giveBack(part);
    const pooled = Buffer.from('x');
    lend(pooled);
    giveBack(pooled);
    expect([small, whole, pooled].map(isFreed)).toEqual([false, false, false]);
  });

  it('frees when all parts are back, in whatever pieces, and not before', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 4000 }), { minLength: 5, maxLength: 16 }), (lengths) => {
        const total = lengths.reduce((sum, length) => sum + length, 0);
        const whole = large(Math.max(16_384, total) + 24);
        lend(whole, total);
        let at = 12;
        const parts = lengths.map((length) => whole.subarray(at, (at += length)));
        for (const part of parts) {
          expect(isFreed(whole)).toBe(false);
          giveBack(part);
        }
        expect(isFreed(whole)).toBe(true);
      }),
    );
  });
});

describe('keep()', () => {
  it('leaves a lent buffer to whoever still reads it', () => {
    const buffer = large();
    lend(buffer);
    keep(buffer.subarray(10, 20));
    giveBack(buffer);
    expect(isFreed(buffer)).toBe(false);
  });
});
