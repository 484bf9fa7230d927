import { describe, expect, it } from 'vitest';
import { detachKeys } from './detach-keys.ts';

const typed = (...chunks: string[]) => {
  const take = detachKeys();
  return chunks.map((chunk) => {
    const { pass, detach } = take(Buffer.from(chunk));
    return [pass.toString(), detach];
  });
};

describe('detachKeys()', () => {
  it('finds Ctrl-P Ctrl-Q in one chunk and in two', () => {
    expect(typed('\u0010\u0011')).toEqual([['', true]]);
    expect(typed('\u0010', '\u0011')).toEqual([
      ['', false],
      ['', true],
    ]);
    expect(typed('ab\u0010', '\u0011cd')).toEqual([
      ['ab', false],
      ['', true],
    ]);
  });

  it('passes on a Ctrl-P that no Ctrl-Q follows', () => {
    expect(typed('\u0010', 'x')).toEqual([
      ['', false],
      ['\u0010x', false],
    ]);
    expect(typed('\u0010', '\u0010', 'y')).toEqual([
      ['', false],
      ['\u0010', false],
      ['\u0010y', false],
    ]);
    expect(typed('a\u0010b', '\u0011')).toEqual([
      ['a\u0010b', false],
      ['\u0011', false],
    ]);
  });
});
