import type { OpenAttempt } from '../attempts.ts';
import type { Denial } from './denial.ts';

/** Ends the record of an attempt. Without a denial it was allowed and has ended by itself. */
export function endAttempt(
  attempt: OpenAttempt,
  denial: Denial | undefined,
  suggestion?: () => string,
): void {
  attempt.end({
    verdict: denial === undefined ? 'allowed' : denial.denied ? 'denied' : 'failed',
    reason: denial?.reason,
    rule: denial?.rule,
    suggestion: denial?.denied ? suggestion?.() : undefined,
  });
}
