import { describe, expect, it } from 'vitest';
import { formatAge, formatBytes, pairs, parseCpus, parseDuration, parsePort, parseSize } from './units.ts';

describe('sizes and times', () => {
  it('are read as people write them', () => {
    expect(['512m', '1.5g', '2GiB', '100', '1k'].map(parseSize)).toEqual([
      536_870_912, 1_610_612_736, 2_147_483_648, 100, 1024,
    ]);
    expect(['500ms', '30s', '5m', '2h', '1d', '7'].map(parseDuration)).toEqual([
      500, 30_000, 300_000, 7_200_000, 86_400_000, 7000,
    ]);
    expect(parseCpus('0.5')).toBe(0.5);
  });

  it.each(['', 'x', '1x', '-1', '1 2'])('refuse "%s"', (text) => {
    for (const parse of [parseSize, parseDuration, parseCpus, parsePort]) expect(() => parse(text)).toThrow();
  });

  it('are shown short', () => {
    expect([0, 1023, 1024, 1536, 10 * 1024 ** 2, 3 * 1024 ** 3].map(formatBytes)).toEqual([
      '0 B',
      '1023 B',
      '1.0 KiB',
      '1.5 KiB',
      '10 MiB',
      '3.0 GiB',
    ]);
    expect([500, 90_000, 600_000, 7_200_000, 200_000_000].map(formatAge)).toEqual([
      '0s',
      '90s',
      '10m',
      '2h',
      '2d',
    ]);
  });
});

describe('pairs()', () => {
  it('gathers values, which may have = in them', () => {
    expect(pairs()('B=2=3', pairs()('A=1'))).toEqual({ A: '1', B: '2=3' });
  });

  it('takes a name alone from the environment if there is one, and refuses it otherwise', () => {
    expect(pairs({ HOME: '/root' })('HOME')).toEqual({ HOME: '/root' });
    expect(pairs({})('HOME')).toEqual({});
    expect(() => pairs()('HOME')).toThrow('KEY=VALUE');
    expect(() => pairs({})('=x')).toThrow('KEY=VALUE');
  });
});
