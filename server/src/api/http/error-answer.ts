import { CayError, ERRORS, type WireError } from '@cay/sdk/protocol';
import { z } from 'zod';
import { suggestField } from './suggest-field.ts';

export interface ErrorAnswer {
  status: number;
  headers: Record<string, string>;
  body: { error: WireError };
  /** Set if the server failed: logged, and never shown to the client. */
  cause?: unknown;
}

/**
 * Maps a failure to an HTTP answer. This is the only place that does. An error that is not a `CayError` is
 * shown as `internal`, without details.
 */
export function errorAnswer(error: unknown): ErrorAnswer {
  const known = asCayError(error);
  const ours = known.code === 'internal';
  const wire = ours
    ? {
        code: 'internal' as const,
        message: 'The server failed to answer this request',
        hint: 'the log of the server has the cause under this request id',
      }
    : known.toWire();
  const headers: Record<string, string> = {};
  if (known.code === 'unauthenticated') headers['WWW-Authenticate'] = 'Bearer realm="cay"';
  const { retryAfterMs, limitBytes } = known.details;
  if (typeof retryAfterMs === 'number') headers['Retry-After'] = String(Math.ceil(retryAfterMs / 1000));
  // The rest of an oversized body is not read, so the connection is closed.
  if (typeof limitBytes === 'number') headers.Connection = 'close';
  return { status: ERRORS[known.code].status, headers, body: { error: wire }, ...(ours && { cause: error }) };
}

/** Maps a failure for a stream that has begun. */
export function wireError(error: unknown): WireError {
  return errorAnswer(error).body.error;
}

function asCayError(error: unknown): CayError {
  if (error instanceof CayError) return error;
  if (error instanceof z.ZodError) return invalid(error);
  if (error instanceof Error && error.name === 'AbortError')
    return new CayError('cancelled', 'The caller disconnected');
  return new CayError('internal', 'internal', { cause: error });
}

/** What a client needs to phrase the fault in its own words. */
function boundsOf(issue: z.core.$ZodIssue): { code: string; minimum?: number; maximum?: number } {
  const { code } = issue;
  if (code === 'too_small') return { code, minimum: Number(issue.minimum) };
  if (code === 'too_big') return { code, maximum: Number(issue.maximum) };
  return { code };
}

/** Of a key of a record, what is wrong with the key. */
function messageOf(issue: z.core.$ZodIssue): string {
  if (issue.code !== 'invalid_key') return issue.message;
  return `${JSON.stringify(String(issue.path.at(-1)).slice(0, 100))} ${issue.issues[0]?.message ?? issue.message}`;
}

/**
 * Names the first fault in words, all of them in details, and in the hint the field that may have been meant.
 */
export function invalid(error: z.ZodError, where = 'request', schema?: z.ZodType): CayError {
  const issues = error.issues.slice(0, 20).map((issue) => ({
    path: issue.path.map(String).join('.'),
    message: messageOf(issue),
    ...boundsOf(issue),
  }));
  const first = issues[0];
  const at = first?.path ? `"${first.path.slice(0, 100)}" in the ${where}` : `The ${where}`;
  const suggestion = schema && suggestField(error, schema);
  return new CayError('invalid_argument', `${at} is not valid: ${first?.message ?? 'unknown'}`, {
    details: { issues },
    ...(suggestion !== undefined && { hint: `did you mean "${suggestion}"?` }),
  });
}
