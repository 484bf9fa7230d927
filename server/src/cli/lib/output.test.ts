import { describe, expect, it } from 'vitest';
import { printable, table } from './output.ts';

describe('table()', () => {
  it('makes columns as wide as their widest cell and counts no colours', () => {
    expect(
      table(
        ['A', 'LONG'],
        [
          ['x', 'y'],
          ['\u001b[32mwide\u001b[39m', 'z'],
        ],
      ),
    ).toBe('A     LONG\nx     y\n\u001b[32mwide\u001b[39m  z');
  });
});

describe('printable()', () => {
  it('lets no control character through', () => {
    expect(printable('a\u001b[2Jb\r\n\u009bc')).toBe('a\uFFFD[2Jb\uFFFD\uFFFD\uFFFDc');
  });
});
