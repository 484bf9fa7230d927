import { describe, expect, it } from 'vitest';
import { within } from './within.ts';

const late = () => new Error('too late');

describe('within()', () => {
  it('passes on what comes in time, good or bad', async () => {
    expect(await within(10_000, Promise.resolve(7), late)).toBe(7);
    await expect(within(10_000, Promise.reject(new Error('own')), late)).rejects.toThrow('own');
  });

  it('rejects when nothing comes, and lets a later failure be nobody’s', async () => {
    const { promise, reject } = Promise.withResolvers<void>();
    await expect(within(5, promise, late)).rejects.toThrow('too late');
    reject(new Error('unheard'));
    await new Promise((resolve) => setTimeout(resolve, 5));
  });
});
