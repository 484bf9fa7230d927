/**
 * The request that the current asynchronous work belongs to, so that a failure that no handler caught can be
 * answered.
 */
import { AsyncLocalStorage } from 'node:async_hooks';

export interface CurrentRequest {
  /** Answers with a failure, or closes the connection if an answer has begun. */
  fail(error: unknown): void;
}

const current = new AsyncLocalStorage<CurrentRequest>();

export function inRequest<T>(request: CurrentRequest, work: () => T): T {
  return current.run(request, work);
}

/** Undefined for work that no request started. */
export function currentRequest(): CurrentRequest | undefined {
  return current.getStore();
}
