import { expect, it } from 'vitest';
import { retry } from './retry.ts';

const transient = new Error('busy');

function failing(times: number) {
  const failures: unknown[] = [];
  let attempts = 0;
  const work = () => {
    if (++attempts <= times) throw transient;
  };
  return { work, failures, attempts: () => attempts, onError: (error: unknown) => failures.push(error) };
}

it('runs the work again until it succeeds, and reports each failure', async () => {
  const { work, failures, attempts, onError } = failing(2);
  await retry(work, { isTransient: () => true, onError, delayMs: 1 });
  expect(attempts()).toBe(1);
  await expect.poll(attempts).toBe(3);
  expect(failures).toEqual([transient, transient]);
});

it('makes no second attempt after a failure that is not transient', async () => {
  const { work, failures, attempts, onError } = failing(1);
  await retry(work, { isTransient: () => false, onError, delayMs: 1 });
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect([attempts(), failures.length]).toEqual([1, 1]);
});

it('can wait before the first attempt', async () => {
  const { work, attempts, onError } = failing(0);
  await retry(work, { isTransient: () => true, onError, delayMs: 1, firstDelayMs: 5 });
  expect(attempts()).toBe(0);
  await expect.poll(attempts).toBe(1);
});
