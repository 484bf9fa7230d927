/**
 * Timeouts and cancellation of promises.
 *
 * A promise cannot be stopped: whatever runs behind it goes on after the timeout, and its result is ignored.
 * Pass a signal (`withDeadline`) where the callee can be cancelled.
 */

/**
 * Resolves or rejects as `promise` does, or rejects with `late()` after `ms`. The timer does not keep the
 * process alive.
 */
export async function withTimeout<T>(promise: Promise<T>, ms: number, late: () => Error): Promise<T> {
  const { promise: expired, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(late()), ms).unref();
  try {
    return await Promise.race([promise, expired]);
  } finally {
    clearTimeout(timer);
  }
}

/** The value of `promise`, or `undefined` after `ms`. The timer keeps the process alive. */
export async function valueWithin<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  const { promise: expired, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => resolve(undefined), ms);
  try {
    return await Promise.race([promise, expired]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Resolves or rejects as `promise` does, or rejects as soon as the signal is aborted: with `toError(signal)`,
 * by default the signal's reason. Leaves no listener on the signal.
 */
export async function unlessAborted<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
  toError: (signal: AbortSignal) => unknown = ({ reason }) => reason,
): Promise<T> {
  if (!signal) return promise;
  if (signal.aborted) throw toError(signal);
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(toError(signal));
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Resolves when the signal is aborted. */
export function whenAborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
}

/** The same call options with a signal that is also aborted after `ms`, with a `TimeoutError`. */
export function withDeadline<T extends { signal?: AbortSignal | undefined }>(
  call: T,
  ms: number,
): T & { signal: AbortSignal } {
  const late = AbortSignal.timeout(ms);
  return { ...call, signal: call.signal ? AbortSignal.any([call.signal, late]) : late };
}
