import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../../test/support/kept-bytes.ts';
import { recordedLine } from './recorded-line.ts';

describe('what is recorded of a command line', () => {
  it('is its beginning', () => {
    expect(recordedLine({ argv: ['echo', 'x'.repeat(5000)] })).toEqual(['echo', 'x'.repeat(4096)]);
    expect(recordedLine({ argv: Array.from({ length: 70 }, () => 'a') })).toHaveLength(64);
    expect(recordedLine({ shell: 'ls' })).toEqual(['sh', '-c', 'ls']);
  });

  it('keeps nothing of the rest', async () => {
    const COUNT = 100;
    const kept: string[][] = [];
    const bytes = await keptBytes(async () => {
      for (let count = 0; count < COUNT; count++)
        kept.push(recordedLine({ argv: [`${count}`.padEnd(131_072, 'x')] }));
    });
    expect(kept).toHaveLength(COUNT);
    expect(bytes / COUNT).toBeLessThan(20_000);
  });
});
