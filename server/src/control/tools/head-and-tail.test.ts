import fc from 'fast-check';
import { expect, it } from 'vitest';
import { HeadAndTail } from './head-and-tail.ts';

it('keeps everything that fits, however it comes', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 40 }), (chunks) => {
      const kept = new HeadAndTail(4000);
      for (const chunk of chunks) kept.add(chunk);
      expect(kept.omittedBytes).toBe(0);
      expect(kept.text()).toBe(Buffer.concat(chunks).toString('utf8'));
    }),
  );
});

it('keeps head and tail of the rest, and says how much is missing', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: 'grapheme', maxLength: 300 }), { minLength: 1, maxLength: 60 }),
      fc.integer({ min: 256, max: 1000 }),
      (texts, most) => {
        const whole = Buffer.from(texts.join(''));
        const kept = new HeadAndTail(most);
        for (let at = 0; at < whole.length; at += 97) kept.add(whole.subarray(at, at + 97));
        expect(kept.bytes).toBe(whole.length);
        const omitted = Math.max(0, whole.length - most);
        expect(kept.omittedBytes).toBe(omitted);
        if (omitted === 0) return;
        const [head, tail] = kept
          .text('/x')
          .split(/\n\n\[… \d+ bytes omitted; the whole output is in \/x …\]\n\n/);
        expect(whole.toString('utf8').startsWith(head!)).toBe(true);
        expect(whole.toString('utf8').endsWith(tail!)).toBe(true);
        expect(Buffer.byteLength(head! + tail!)).toBeGreaterThan(most - 8);
      },
    ),
  );
});
