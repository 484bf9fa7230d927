import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { unlessAborted, valueWithin, whenAborted, withDeadline, withTimeout } from './timeout.ts';

const late = () => new Error('too late');

describe('withTimeout()', () => {
  it('passes on a value or an error that comes in time', async () => {
    expect(await withTimeout(Promise.resolve(7), 10_000, late)).toBe(7);
    await expect(withTimeout(Promise.reject(new Error('own')), 10_000, late)).rejects.toThrow('own');
  });

  it('rejects after the timeout, and a later failure is not an unhandled rejection', async () => {
    const { promise, reject } = Promise.withResolvers<void>();
    await expect(withTimeout(promise, 5, late)).rejects.toThrow('too late');
    reject(new Error('unheard'));
    await sleep(5);
  });
});

describe('valueWithin()', () => {
  it('resolves the value, or undefined after the timeout', async () => {
    expect(await valueWithin(Promise.resolve(7), 10_000)).toBe(7);
    expect(await valueWithin(new Promise(() => {}), 5)).toBeUndefined();
  });
});

describe('unlessAborted()', () => {
  it('rejects when the signal is aborted, before or during the wait', async () => {
    await expect(unlessAborted(new Promise(() => {}), AbortSignal.abort('x'))).rejects.toBe('x');
    const controller = new AbortController();
    const waiting = unlessAborted(new Promise(() => {}), controller.signal, () => late());
    controller.abort();
    await expect(waiting).rejects.toThrow('too late');
  });

  it('passes on the value without a signal, and while the signal is not aborted', async () => {
    expect(await unlessAborted(Promise.resolve(7), undefined)).toBe(7);
    expect(await unlessAborted(Promise.resolve(7), new AbortController().signal)).toBe(7);
  });
});

describe('whenAborted()', () => {
  it('resolves for a signal that is or becomes aborted', async () => {
    await whenAborted(AbortSignal.abort());
    await whenAborted(AbortSignal.timeout(5));
  });
});

describe('withDeadline()', () => {
  it('adds a deadline and keeps the signal and the other options', async () => {
    const controller = new AbortController();
    const call = withDeadline({ signal: controller.signal, depth: 2 }, 10_000);
    expect(call.depth).toBe(2);
    controller.abort('stop');
    expect(call.signal.reason).toBe('stop');
    const timed = withDeadline({}, 5);
    await whenAborted(timed.signal);
    expect(timed.signal.reason).toMatchObject({ name: 'TimeoutError' });
  });
});
