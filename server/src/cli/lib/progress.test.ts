import { describe, expect, it } from 'vitest';
import { progressLine } from './progress.ts';

// oxlint-disable-next-line no-control-regex -- the test is not about colours
const plain = (text: string) => text.replaceAll(/\u001b\[[0-9;]*m/g, '');
const MiB = 1024 ** 2;

describe('progressLine()', () => {
  it('shows percent and the remaining time where the size is known', () => {
    expect(plain(progressLine('a →', { done: 25 * MiB, total: 100 * MiB, ms: 1000 }))).toBe(
      'a → 25 MiB of 100 MiB 25 % 3s left 25 MiB/s',
    );
    expect(plain(progressLine('a →', { done: 100 * MiB, total: 100 * MiB, ms: 2000 }))).toBe(
      'a → 100 MiB of 100 MiB 100 % 50 MiB/s',
    );
  });

  it('shows what has passed where it is not', () => {
    expect(plain(progressLine('a →', { done: 25 * MiB, ms: 1000 }))).toBe('a → 25 MiB 25 MiB/s');
  });
});
