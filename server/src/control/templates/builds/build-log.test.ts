import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { buildLog } from './build-log.ts';

describe('the log of a build', () => {
  it('has the lines of output, however the output was cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: 'grapheme' }).map((line) => line.replaceAll(/[\r\n]/g, ' '))),
        fc.array(fc.nat(20)),
        (lines, cuts) => {
          const log = buildLog(() => 7);
          const out = log.lines('info', '> ');
          let data = Buffer.from(lines.map((line) => `${line}\n`).join(''));
          for (const cut of cuts) {
            out.write(data.subarray(0, cut));
            data = data.subarray(cut);
          }
          out.write(data);
          out.end();
          expect(log.entries).toEqual(
            lines.map((line) => ({ atMs: 7, level: 'info', message: `> ${line}` })),
          );
        },
      ),
    );
  });

  it('has an unfinished last line, and long lines in pieces', () => {
    const log = buildLog(() => 0);
    const out = log.lines('info');
    out.write(Buffer.from(`a\r\n${'x'.repeat(5000)}`));
    out.end();
    expect(log.entries.map(({ message }) => message.length)).toEqual([1, 4096, 904]);
  });

  it('is bounded in entries and in characters, and says when it is full', () => {
    for (const [line, count] of [
      ['x', 30_000],
      ['x'.repeat(4000), 2000],
    ] as const) {
      const log = buildLog(() => 0);
      for (let index = 0; index < count; index++) log.add('info', line);
      expect(log.entries.length).toBeLessThanOrEqual(10_001);
      expect(log.entries.reduce((sum, { message }) => sum + message.length, 0)).toBeLessThan(
        2.1 * 1024 * 1024,
      );
      expect(log.entries.at(-1)).toMatchObject({
        level: 'warn',
        message: expect.stringContaining('full') as string,
      });
      expect(log.entries.filter(({ level }) => level === 'warn')).toHaveLength(1);
    }
  });
});
