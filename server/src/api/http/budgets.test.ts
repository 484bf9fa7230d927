import { describe, expect, it } from 'vitest';
import { openBudgets } from './budgets.ts';

const MiB = 1024 ** 2;
const limits = { calls: 2, streams: 1, helpers: 1, bytes: 1000 };
const refusedWith = (budget: string) =>
  expect.objectContaining({
    code: 'resource_exhausted',
    details: expect.objectContaining({ budget, retryAfterMs: 1000 }),
  });

describe('budgets', () => {
  it('refuse one call too many of a project, and none of another', () => {
    const budgets = openBudgets(limits);
    const calls = [budgets.take('a', 'call'), budgets.take('a', 'call')];
    expect(() => budgets.take('a', 'call')).toThrow(refusedWith('calls'));
    budgets.take('b', 'call');
    budgets.take('a', 'stream');
    expect(() => budgets.take('a', 'stream')).toThrow(refusedWith('streams'));
    calls[0]!.release();
    calls[0]!.release();
    budgets.take('a', 'call');
    expect(() => budgets.take('a', 'call')).toThrow(refusedWith('calls'));
  });

  it('give back the bytes of a call when it ends', () => {
    const budgets = openBudgets(limits);
    const [one, other] = [budgets.take('a', 'call'), budgets.take('a', 'call')];
    expect([one.hold(900), other.hold(200), other.hold(100)]).toEqual([true, false, true]);
    one.release();
    expect([other.hold(900), one.hold(1)]).toEqual([true, false]);
  });

  it('have helpers wait for their turn, those that were given up not', async () => {
    const budgets = openBudgets(limits);
    const [first, second, third] = [
      budgets.take('a', 'helper'),
      budgets.take('a', 'helper'),
      budgets.take('a', 'helper'),
    ];
    expect(first.turn).toBeUndefined();
    expect(budgets.take('b', 'helper').turn).toBeUndefined();
    let turns = 0;
    void third.turn!.then(() => turns++);
    second.release();
    await Promise.resolve();
    expect(turns).toBe(0);
    first.release();
    await third.turn;
    expect(turns).toBe(1);
  });

  it('count a call whose caller is gone until its work has settled', async () => {
    const budgets = openBudgets(limits);
    const share = budgets.take('a', 'stream');
    const work = Promise.withResolvers<void>();
    share.until(work.promise);
    share.release();
    expect(() => budgets.take('a', 'stream')).toThrow(refusedWith('streams'));
    work.reject(new Error('whatever'));
    await work.promise.catch(() => {});
    await Promise.resolve();
    budgets.take('a', 'stream');
  });

  it('tell a helper that waits for its turn that its caller is gone', async () => {
    const budgets = openBudgets(limits);
    const [first, second] = [budgets.take('a', 'helper'), budgets.take('a', 'helper')];
    second.until(second.turn!);
    second.release();
    await expect(second.turn).rejects.toThrow('disconnected');
    first.release();
    expect(budgets.take('a', 'helper').turn).toBeUndefined();
  });

  it('leave every project one helper, however many others hold theirs', () => {
    const budgets = openBudgets({ ...limits, helpers: 4 });
    for (const project of ['a', 'b', 'c', 'd'])
      for (let taken = 0; taken < 4; taken++) budgets.take(project, 'helper');
    const [first, second] = [budgets.take('e', 'helper'), budgets.take('e', 'helper')];
    expect([first.turn, second.turn !== undefined]).toEqual([undefined, true]);
  });

  it('refuse helpers when too many wait', () => {
    const budgets = openBudgets(limits);
    for (let index = 0; index < 33; index++) budgets.take('a', 'helper');
    expect(() => budgets.take('a', 'helper')).toThrow(refusedWith('helpers'));
  });

  it('refuse to parse more of a project than so many bytes a second, and nothing of another for it', () => {
    const budgets = openBudgets(limits);
    const mine = budgets.take('a', 'call');
    for (let sent = 0; sent < 32; sent += 8) mine.parse(8 * MiB);
    expect(() => mine.parse(8 * MiB)).toThrow(
      expect.objectContaining({
        code: 'resource_exhausted',
        details: expect.objectContaining({ budget: 'parsedBytes' }),
      }),
    );
    budgets.take('b', 'call').parse(8 * MiB);
  });
});
