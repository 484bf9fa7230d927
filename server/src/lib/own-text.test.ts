import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../test/support/kept-bytes.ts';
import { ownText } from './own-text.ts';

describe('ownText()', () => {
  it('is the beginning of a text', () => {
    expect([ownText('größe'), ownText('größe', 3), ownText('')]).toEqual(['größe', 'grö', '']);
  });

  it('keeps nothing else of it', async () => {
    const COUNT = 200;
    const kept: string[] = [];
    const bytes = await keptBytes(async () => {
      for (let count = 0; count < COUNT; count++) kept.push(ownText(`${count}`.padEnd(100_000, 'x'), 100));
    });
    expect(kept).toHaveLength(COUNT);
    expect(bytes / COUNT).toBeLessThan(5_000);
  });
});
