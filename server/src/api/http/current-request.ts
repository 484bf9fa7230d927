/**
 * Which request is being answered, wherever its work has got to: for failures that nothing on the way caught.
 */
import { AsyncLocalStorage } from 'node:async_hooks';

export interface CurrentRequest {
  /** Answers it with a failure, or hangs up if an answer has begun. */
  fail(error: unknown): void;
}

const current = new AsyncLocalStorage<CurrentRequest>();

export function inRequest<T>(request: CurrentRequest, work: () => T): T {
  return current.run(request, work);
}

/** Undefined for work that no request began. */
export function currentRequest(): CurrentRequest | undefined {
  return current.getStore();
}
