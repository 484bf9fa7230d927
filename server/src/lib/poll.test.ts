import { expect, it } from 'vitest';
import { poll } from './poll.ts';

it('repeats until there is a value', async () => {
  let attempts = 0;
  expect(await poll(() => (++attempts < 3 ? undefined : 'done'), { timeoutMs: 10_000, delayMs: 1 })).toBe(
    'done',
  );
  expect(attempts).toBe(3);
});

it('resolves undefined after the timeout, with at least one attempt', async () => {
  let attempts = 0;
  const count = () => void attempts++;
  expect(await poll(count, { timeoutMs: 0, delayMs: 1 })).toBeUndefined();
  expect(attempts).toBe(1);
});

it('rejects with the failure of an attempt, and when the signal is aborted', async () => {
  const options = { timeoutMs: 10_000, delayMs: 10_000 };
  await expect(poll(() => Promise.reject(new Error('own')), options)).rejects.toThrow('own');
  const signal = AbortSignal.timeout(5);
  await expect(poll(() => undefined, { ...options, signal })).rejects.toMatchObject({ name: 'AbortError' });
});
