import { describe, expect, it } from 'vitest';
import { barLines } from './pull-bars.ts';

const layer = (fetchedBytes: number, totalBytes: number) => ({
  digest: `sha256:${'ab'.repeat(32)}`,
  fetchedBytes,
  totalBytes,
  state: 'fetching' as const,
});

describe('barLines()', () => {
  it('shows the sum and each layer, and counts those that do not fit', () => {
    const layers = Array.from({ length: 15 }, (_, at) => layer(at * 1000, 14_000));
    const lines = barLines('tool:1', { state: 'fetching', fetchedBytes: 5, totalBytes: 10, layers });
    expect(lines).toHaveLength(14);
    expect(lines[0]).toMatch(/^tool:1 5 .* of 10 /);
    expect(lines[1]).toContain(`${'░'.repeat(24)}`);
    expect(lines.at(-1)).toBe('  and 3 more layers');
  });

  it('has a full bar for what has no bytes', () => {
    const [, line] = barLines('x', { state: 'done', fetchedBytes: 0, totalBytes: 0, layers: [layer(0, 0)] });
    expect(line).toContain('█'.repeat(24));
  });
});
