import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isAlive, openFilesHardLimit, parseProcessStat, processStat } from './proc.ts';

describe('processStat()', () => {
  it('knows this process and nothing of one that is not there', () => {
    const stat = processStat(process.pid);
    expect(stat?.parent).toBe(process.ppid);
    expect(isAlive(process.pid)).toBe(true);
    expect(isAlive(process.pid, stat?.startTime)).toBe(true);
    expect(isAlive(process.pid, (stat?.startTime ?? 0) + 1)).toBe(false);
    expect(processStat(4_194_305)).toBeUndefined();
    expect(isAlive(4_194_305)).toBe(false);
  });

  it('is not misled by any name', () => {
    const rest = Array.from({ length: 48 }, (_, index) => index + 4).join(' ');
    fc.assert(
      fc.property(fc.string({ maxLength: 15 }), (name) => {
        expect(parseProcessStat(`12 (${name}) S ${rest}`)).toEqual({
          name,
          state: 'S',
          parent: 4,
          startTime: 22,
        });
      }),
    );
  });

  it('openFilesHardLimit() is a positive number', () => {
    expect(openFilesHardLimit()).toBeGreaterThan(0);
  });
});
