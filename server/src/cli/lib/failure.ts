/** How a verb fails: one line with the failure, one with what to do about it, and an exit code. */
import { CayError, ERRORS, isCayError } from '@cay/sdk/client';
import { inCliWords } from './cli-words.ts';
import { hintFor } from './hint-for.ts';
import { errorColour, note, printable } from './output.ts';

/**
 * What `run`, `exec`, `attach`, `wait` and `shell` exit with when it is not the command that failed but Cay.
 */
const CANNOT_RUN = 125;

let asJson = false;
let verb: VerbInUse = { path: '', flags: [] };

/** The verb that runs: errors name only flags that it has, and its help where nothing else can be said. */
export interface VerbInUse {
  /** Such as `volume create`. */
  path: string;
  /** Such as `--name`. */
  flags: readonly string[];
}

export function reportFailuresOf(inUse: VerbInUse): void {
  verb = inUse;
}

/** From here on failures are reported as JSON, as results are with `--json`. */
export function reportFailuresAsJson(json: boolean): void {
  asJson = json;
}

export function reportFailure(error: unknown): void {
  const known = withSomeHint(inCliWords(error, verb.flags));
  if (asJson) return note(JSON.stringify({ error: known.toWire() }));
  note(`${errorColour.red('error:')} ${printable(known.message)}`);
  if (known.hint !== undefined) note(`${errorColour.cyan('hint:')} ${printable(known.hint)}`);
  if (!isCayError(error) && process.env['CAY_DEBUG'] && error instanceof Error) note(error.stack ?? '');
}

/** Every failure says what to do next. */
function withSomeHint(known: CayError): CayError {
  if (known.hint !== undefined) return known;
  const { code, message, details } = known;
  const hint = hintFor(known, verb.path);
  return new CayError(code, message, { details, hint, cause: known.cause ?? known });
}

export function exitCodeOf(error: unknown): number {
  return ERRORS[inCliWords(error).code].exitCode;
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

/** The same failure with a hint that only the verb can give. */
export function withHint(error: unknown, hint: string): CayError {
  const { code, message, details, cause } = inCliWords(error);
  return new CayError(code, message, { details, hint, cause: cause ?? error });
}
