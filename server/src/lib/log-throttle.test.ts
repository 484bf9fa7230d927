import { describe, expect, it } from 'vitest';
import { logThrottle } from './log-throttle.ts';

describe('logThrottle', () => {
  it('lets one of each name through for a while and counts the others', () => {
    let nowMs = 0;
    const { happens } = logThrottle({ everyMs: 100, now: () => nowMs });
    expect(happens('a')).toEqual({ first: true, held: 0 });
    expect(happens('a')).toEqual({ first: false, held: 1 });
    expect(happens('b').first).toBe(true);
    nowMs = 99;
    expect(happens('a')).toEqual({ first: false, held: 2 });
    nowMs = 100;
    expect(happens('a')).toEqual({ first: true, held: 2 });
    nowMs = 50;
    expect(happens('a').first).toBe(true);
  });

  it('knows only so many names', () => {
    let nowMs = 0;
    const { happens } = logThrottle({ everyMs: 100, most: 3, now: () => nowMs });
    const firsts = Array.from({ length: 10 }, (_, i) => happens(`n${i}`).first);
    expect(firsts.filter(Boolean)).toHaveLength(4);
    nowMs = 200;
    expect(happens('new').first).toBe(true);
  });
});
