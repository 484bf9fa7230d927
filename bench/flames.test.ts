import { expect, test } from 'vitest';
import { drawFlames } from './draw-flames.ts';
import { foldStack, type Stacks } from './fold-stacks.ts';

const sample = (thread: string, pid: number, ...frames: string[]) => [
  `${thread} ${pid} `,
  ...frames.map((frame, index) => `    ffff${index} ${frame}`),
];

test('stacks are folded from the outermost function in, and those of this process have a name', () => {
  const stacks: Stacks = new Map();
  foldStack(sample('MainThread', 7, 'write', 'JS:*send /a/b/guest.ts:10:2'), 7, stacks);
  foldStack(sample('MainThread', 7, 'write', 'JS:*send /a/b/guest.ts:10:2'), 7, stacks);
  foldStack(sample('kworker/u8:3-btrfs', 9, 'commit+0x12'), 7, stacks);
  foldStack(sample('swapper', 0, 'idle'), 7, stacks);
  foldStack(sample('my thread', 11, '[unknown]', '[unknown]', 'main'), 7, stacks);
  expect([...stacks]).toEqual([
    ['engine;send guest.ts:10;write', 2],
    ['kworker;commit', 1],
    ['my thread;main;[unknown]', 1],
  ]);
});

test('a flame graph escapes names and leaves out what is too thin to see', () => {
  const svg = drawFlames(
    'a < b',
    new Map([
      ['p;operator<', 999],
      ['thin', 1],
    ]),
  );
  expect(svg).toContain('a &lt; b');
  expect(svg).toContain('operator&lt;: 99.9 %');
  expect(svg).not.toContain('thin');
});
