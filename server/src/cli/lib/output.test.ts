import { describe, expect, it } from 'vitest';
import { printable, table, tableWithin } from './output.ts';

describe('table()', () => {
  it('makes columns as wide as their widest cell and counts no colours', () => {
    expect(
      table(
        ['A', 'LONG'],
        [
          ['x', 'y'],
          ['\u001b[32mwide\u001b[39m', 'z'],
        ],
      ),
    ).toBe('A     LONG\nx     y\n\u001b[32mwide\u001b[39m  z');
  });
});

describe('printable()', () => {
  it('lets no control character through', () => {
    expect(printable('a\u001b[2Jb\r\n\u009bc')).toBe('a\uFFFD[2Jb\uFFFD\uFFFD\uFFFDc');
  });
});

describe('tableWithin()', () => {
  const heads = ['NAME', 'SIZE', 'WHAT'];
  const rows = [
    ['one', '1', 'x'.repeat(20)],
    ['two', '2', 'y'],
  ];
  const lines = (columns: number, height: number) =>
    tableWithin(heads, rows, { columns, rows: height }).split('\n');

  it('is the whole table where there is room', () => {
    expect(lines(80, 24)).toEqual(table(heads, rows).split('\n'));
    expect(lines(Infinity, Infinity)).toEqual(table(heads, rows).split('\n'));
  });

  it('leaves out columns and rows, says so, and is never wider or higher', () => {
    expect(lines(25, 24)).toEqual(['NAME  SIZE', 'one   1', 'two   2', 'no room for WHAT']);
    expect(lines(80, 4)).toEqual([...table(heads, rows.slice(0, 1)).split('\n'), 'no room for 1 more row']);
    for (const columns of [1, 5, 12, 40])
      for (const height of [1, 3, 5]) {
        expect(lines(columns, height).length).toBeLessThanOrEqual(Math.max(3, height - 1));
        expect(
          Math.max(
            ...lines(columns, height)
              .slice(-1)
              .map((line) => line.length),
          ),
        ).toBeLessThanOrEqual(Math.max(columns, 4));
      }
  });
});
