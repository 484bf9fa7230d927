import { describe, expect, it } from 'vitest';
import type { DiffJob } from './diff-job.ts';
import { takeDiffThread } from './diff-thread.ts';

const change = {
  path: '/x',
  change: 'modified',
  type: 'file',
  content: true,
  mode: false,
  owner: false,
} as const;
const job = (before: string, after: string): DiffJob => ({
  kind: 'count',
  pair: { change, oldPath: '/x', newPath: '/x' },
  contents: { before: Buffer.from(before), after: Buffer.from(after) },
  bounds: {},
  careful: true,
});

describe('a thread that compares', () => {
  it('a job that cannot be handled fails alone, and the next one works', async () => {
    const broken = takeDiffThread();
    const { answer } = await broken.run({ ...job('a', 'b'), pair: undefined as never, kind: 'patch' });
    expect(answer).toHaveProperty('failure');
    broken.release();
    const next = takeDiffThread();
    expect((await next.run(job('a\n', 'b\n'))).answer).toEqual({
      counts: { insertions: 1, deletions: 1, binary: false },
    });
    next.release();
  });

  it('ends at once when it is given up in the middle of a file', async () => {
    const lines = (word: string) => Array.from({ length: 1500 }, (_, index) => `${word} ${index}\n`).join('');
    const thread = takeDiffThread();
    const running = thread.run(job(lines('a'), lines('b')));
    setTimeout(() => thread.release(), 5);
    await expect(running).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('compares without care in next to no time', async () => {
    const lines = (word: string) =>
      Array.from({ length: 20_000 }, (_, index) => `${word} ${index % 2000}\n`).join('');
    const thread = takeDiffThread();
    const { answer } = await thread.run({ ...job(lines('a'), lines('b')), careful: false });
    expect(answer).toEqual({ counts: { insertions: 20_000, deletions: 20_000, binary: false } });
    thread.release();
  });
});
