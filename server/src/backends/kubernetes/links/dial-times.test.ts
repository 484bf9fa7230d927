import { describe, expect, it } from 'vitest';
import { dialTimes } from './dial-times.ts';

describe('dialTimes', () => {
  it('lets a few attempts go before the cluster says that there is something to dial, and no more', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const turn = dialTimes(promise);
    for (let attempt = 0; attempt < 3; attempt++) await turn();
    let dialled = false;
    const fourth = turn().then(() => (dialled = true));
    await new Promise((done) => setTimeout(done, 50));
    expect(dialled).toBe(false);
    resolve();
    await fourth;
    await turn();
  });

  it('rejects when there will be nothing to dial', async () => {
    await expect(dialTimes(Promise.reject(new Error('it ended')))()).rejects.toThrow('it ended');
  });
});
