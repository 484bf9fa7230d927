import type { CallScope } from '../../backend.ts';

/** How long a guest that is there may take to answer. Whatever is in its place may never do. */
const ANSWER_MS = 10_000;

/** The same call, given up as `deadline_exceeded` when that time is over. */
export function inTime<T extends CallScope>(call: T, ms = ANSWER_MS): T & { signal: AbortSignal } {
  const late = AbortSignal.timeout(ms);
  return { ...call, signal: call.signal ? AbortSignal.any([call.signal, late]) : late };
}
