import { describe, expect, it } from 'vitest';
import { closest } from './closest.ts';

const verbs = ['logs', 'cert', 'inspect', 'snapshot', 'ls', 'exec', 'port'];

describe('closest()', () => {
  it.each([
    ['inspekt', 'inspect'],
    ['snpashot', 'snapshot'],
    ['lgos', 'logs'],
    ['exce', 'exec'],
  ])('%s was probably %s', (word, meant) => {
    expect(closest(word, verbs)).toBe(meant);
  });

  it.each(['bogus', 'nonsense', 'qq', ''])('suggests nothing for "%s"', (word) => {
    expect(closest(word, verbs)).toBeUndefined();
  });
});
