/** Errors as E2B's clients understand them: `{code, message}` with a numeric status, or Connect's shape. */
import { ERRORS, isCayError, type ErrorCode } from '@cay/sdk/protocol';
import { errorAnswer } from '../http/error-answer.ts';

export interface E2bErrorAnswer {
  status: number;
  headers: Record<string, string>;
  body: { code: number | string; message: string };
  /** Set if the server failed: logged, and never shown to the client. */
  cause?: unknown;
}

/** Codes for which E2B's clients expect another status than our API has. */
const STATUS: Partial<Record<ErrorCode, number>> = { failed_precondition: 409 };

export function e2bError(error: unknown): E2bErrorAnswer {
  const { headers, body, cause } = errorAnswer(error);
  const { code, message, hint } = body.error;
  const status = STATUS[code] ?? ERRORS[code].status;
  return {
    status,
    headers,
    body: { code: status, message: withHint(message, hint) },
    ...(cause !== undefined && { cause }),
  };
}

/**
 * Whether the same call may succeed in a moment. Newer clients go by this header and not by the status: a
 * quota that is used up, and a call that may have been carried out, are not worth another try.
 */
export function shouldRetry(error: unknown): boolean {
  if (!isCayError(error)) return false;
  if (error.code === 'resource_exhausted') return typeof error.details['retryAfterMs'] === 'number';
  return error.code === 'unavailable';
}

/** Errors of the file routes, which have two more statuses. */
export function envdError(error: unknown): E2bErrorAnswer {
  const answer = e2bError(error);
  const details = isCayError(error) ? error.details : {};
  const status = NO_SPACE.has(String(details['errno']))
    ? 507
    : details['encoding'] === 'refused'
      ? 406
      : answer.status;
  return { ...answer, status, body: { code: status, message: answer.body.message } };
}

const NO_SPACE = new Set(['ENOSPC', 'EDQUOT']);

/** Connect's names of our codes, and their statuses. */
const CONNECT: Record<ErrorCode, { code: string; status: number }> = {
  invalid_argument: { code: 'invalid_argument', status: 400 },
  unauthenticated: { code: 'unauthenticated', status: 401 },
  permission_denied: { code: 'permission_denied', status: 403 },
  not_found: { code: 'not_found', status: 404 },
  already_exists: { code: 'already_exists', status: 409 },
  conflict: { code: 'aborted', status: 409 },
  failed_precondition: { code: 'failed_precondition', status: 400 },
  resource_exhausted: { code: 'resource_exhausted', status: 429 },
  unsupported: { code: 'unimplemented', status: 501 },
  unavailable: { code: 'unavailable', status: 503 },
  deadline_exceeded: { code: 'deadline_exceeded', status: 504 },
  cancelled: { code: 'canceled', status: 499 },
  internal: { code: 'internal', status: 500 },
};

export function connectError(error: unknown): E2bErrorAnswer {
  const { headers, body, cause } = errorAnswer(error);
  const { code, message, hint } = body.error;
  const { code: name, status } = CONNECT[code];
  return {
    status,
    headers,
    body: { code: name, message: withHint(message, hint) },
    ...(cause !== undefined && { cause }),
  };
}

function withHint(message: string, hint: string | undefined): string {
  return hint === undefined ? message : `${message} (${hint})`;
}
