import { describe, expect, it } from 'vitest';
import { readableLine } from './readable-log.ts';

// oxlint-disable-next-line no-control-regex -- the test is not about colours
const plain = (json: object) => readableLine(JSON.stringify(json)).replaceAll(/\u001b\[[0-9;]*m/g, '');

describe('readableLine()', () => {
  it('shows time, level, message, failure and fields on one line', () => {
    const time = new Date(2026, 0, 31, 12, 34, 56).getTime();
    expect(plain({ level: 30, time, pid: 1, hostname: 'h', msg: 'listening', url: 'http://x', n: 2 })).toBe(
      '12:34:56 info  listening url=http://x n=2\n',
    );
    expect(plain({ level: 50, time, msg: 'backend', err: { message: 'no room', stack: 'at…' } })).toBe(
      '12:34:56 error backend no room\n',
    );
  });

  it('keeps control characters from the terminal, and shows what is not JSON as it is', () => {
    expect(plain({ level: 30, time: 0, msg: '\u001b[2Jgone' })).not.toContain('\u001b');
    expect(readableLine('plain\n')).toBe('plain\n');
  });
});
