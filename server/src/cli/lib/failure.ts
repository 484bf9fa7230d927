/** How a verb fails: one line that says what, one that says what to do, and an exit code. */
import { CayError, ERRORS, isCayError } from '@cay/sdk/client';
import { errorColour, note, printable } from './output.ts';

/**
 * What `run`, `exec`, `attach`, `wait` and `shell` exit with when it is not the command that failed but Cay.
 */
const CANNOT_RUN = 125;
export const USAGE = ERRORS.invalid_argument.exitCode;

export function reportFailure(error: unknown): void {
  const { message, hint } = isCayError(error)
    ? error
    : { message: String((error as Error)?.message ?? error), hint: undefined };
  note(`${errorColour.red('error:')} ${printable(message)}`);
  if (hint !== undefined) note(`${errorColour.cyan('hint:')} ${printable(hint)}`);
  if (!isCayError(error) && process.env['CAY_DEBUG'] && error instanceof Error) note(error.stack ?? '');
}

export function exitCodeOf(error: unknown): number {
  return isCayError(error) ? ERRORS[error.code].exitCode : ERRORS.internal.exitCode;
}

/**
 * The same where a command was to be run: the shell's own codes, else the one that says it was not the
 * command's.
 */
export function commandExitCodeOf(error: unknown): number {
  const known = isCayError(error) ? error.details['exitCode'] : undefined;
  return typeof known === 'number' ? known : CANNOT_RUN;
}

export function usageError(message: string, hint?: string): CayError {
  return new CayError('invalid_argument', message, { ...(hint !== undefined && { hint }) });
}
