import { describe, expect, it } from 'vitest';
import { valueMask } from './mask-values.ts';

describe('the mask of values', () => {
  it('blanks values wherever they stand, and leaves short ones', () => {
    const mask = valueMask({ A: 'secret-one', B: 'short' }, { C: 'secret-one-and-more' });
    expect(mask('x secret-one y short secret-one-and-more!', 100)).toBe('x *** y short ***!');
  });

  it('leaves no rest of a value that overlaps another', () => {
    expect(valueMask({ A: 'xbcdef', B: 'bcdefghij' })('--xbcdefghij--', 100)).toBe('--***--');
    expect(valueMask({ A: 'abcabcab' })('abcabcabcab.', 100)).toBe('***.');
  });

  it('shows no beginning of a value that is cut off', () => {
    const long = (letter: string) => Array.from({ length: 500 }, (_, index) => `${letter}${index}`).join('');
    const mask = valueMask({ A: long('a'), B: long('b') });
    expect(mask(`${long('a')}${long('b')}tail`, 1024)).toBe('***tail');
    expect(mask(`${'x'.repeat(1020)}${long('b')}`, 1024)).toBe(`${'x'.repeat(1020)}***`);
  });

  it('takes about a millisecond, whatever values and texts are', () => {
    const env = (value: (index: number) => string) =>
      Object.fromEntries(Array.from({ length: 1024 }, (_, index) => [`K${index}`, value(index)]));
    const text = 'a'.repeat(131_072);
    const attacks = [
      valueMask(
        env(() => 'aaaaab'),
        env(() => 'aaaaab'),
      ),
      valueMask(env((index) => `${'a'.repeat(6000)}${index}`)),
      valueMask(env((index) => 'a'.repeat(index + 6))),
    ];
    for (const mask of attacks) {
      // The fastest of some rounds, because other programs run meanwhile. The product of values and texts
      // would take minutes.
      const rounds = Array.from({ length: 5 }, () => {
        const before = performance.now();
        for (let argument = 0; argument < 64; argument++) mask(text, 2048);
        return performance.now() - before;
      });
      expect(Math.min(...rounds)).toBeLessThan(50);
      expect(mask('something else', 100)).not.toContain('something');
    }
  });
});
