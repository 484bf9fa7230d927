import { CayError, ERRORS, type WireError } from '@cay/sdk/protocol';
import { z } from 'zod';

export interface ErrorAnswer {
  status: number;
  headers: Record<string, string>;
  body: { error: WireError };
  /** Set when the failure is ours: to be logged, never shown. */
  cause?: unknown;
}

/**
 * The one place where a failure becomes an HTTP answer. What is not a `CayError` is shown as `internal` and
 * nothing more.
 */
export function errorAnswer(error: unknown): ErrorAnswer {
  const known = asCayError(error);
  const ours = known.code === 'internal';
  const wire = ours
    ? {
        code: 'internal' as const,
        message: 'The server failed to answer this request',
        hint: 'its log tells more under this request id',
      }
    : known.toWire();
  const headers: Record<string, string> = {};
  if (known.code === 'unauthenticated') headers['WWW-Authenticate'] = 'Bearer realm="cay"';
  const { retryAfterMs, limitBytes } = known.details;
  if (typeof retryAfterMs === 'number') headers['Retry-After'] = String(Math.ceil(retryAfterMs / 1000));
  // What remains of an oversized body is not worth reading.
  if (typeof limitBytes === 'number') headers.Connection = 'close';
  return { status: ERRORS[known.code].status, headers, body: { error: wire }, ...(ours && { cause: error }) };
}

/** The same for a stream that has begun. */
export function wireError(error: unknown): WireError {
  return errorAnswer(error).body.error;
}

function asCayError(error: unknown): CayError {
  if (error instanceof CayError) return error;
  if (error instanceof z.ZodError) return invalid(error);
  if (error instanceof Error && error.name === 'AbortError')
    return new CayError('cancelled', 'The caller went away');
  return new CayError('internal', 'internal', { cause: error });
}

/** What a client needs to phrase the fault in its own words. */
function boundsOf(issue: z.core.$ZodIssue): { code: string; minimum?: number; maximum?: number } {
  const { code } = issue;
  if (code === 'too_small') return { code, minimum: Number(issue.minimum) };
  if (code === 'too_big') return { code, maximum: Number(issue.maximum) };
  return { code };
}

/** Names the first fault in words and all of them in details. */
export function invalid(error: z.ZodError, where = 'request'): CayError {
  const issues = error.issues
    .slice(0, 20)
    .map((issue) => ({ path: issue.path.map(String).join('.'), message: issue.message, ...boundsOf(issue) }));
  const first = issues[0];
  const at = first?.path ? `"${first.path.slice(0, 100)}" in the ${where}` : `The ${where}`;
  return new CayError('invalid_argument', `${at} is not valid: ${first?.message ?? 'unknown'}`, {
    details: { issues },
  });
}
