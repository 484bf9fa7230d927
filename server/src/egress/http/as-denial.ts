import { Denial } from '../carrier/denial.ts';

/** What is no denial comes from the connection to the target. */
export function asDenial(error: unknown): Denial {
  if (error instanceof Denial) return error;
  return new Denial(
    'connect',
    `The target does not answer: ${error instanceof Error ? error.message : 'unknown'}`,
  );
}
