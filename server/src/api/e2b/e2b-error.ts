/**
 * Failures as E2B's clients understand them: `{code, message}` with the status as a number, or Connect's own
 * shape.
 */
import { ERRORS, isCayError, type ErrorCode } from '@cay/sdk/protocol';
import { errorAnswer } from '../http/error-answer.ts';

export interface E2bErrorAnswer {
  status: number;
  headers: Record<string, string>;
  body: { code: number | string; message: string };
  /** Set when the failure is ours: to be logged, never shown. */
  cause?: unknown;
}

/** Where E2B's clients expect another status than our own API gives. */
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

/** The same for a plain request to a sandbox's files, where two more things can be told. */
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

/** What Connect calls each of our codes, and the status that it has where there is one. */
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
