/**
 * The one error of Cay.
 *
 * Every failure that a caller can see, in the SDK, over HTTP, on the command line or between a
 * backend and the control plane, is a `CayError` with a code from one closed list. A result that
 * is not a failure (a command that exits with 1, a path that does not exist when asked whether it
 * does) is a value and never an error.
 *
 * Messages are a sentence without a full stop that says what could not be done, quotes the value
 * that was wrong and then says why: `Cannot start sandbox "sbx_7f": template "bse" is unknown`.
 * What the reader may do about it goes into `hint`.
 */

/** What each code means, and how it appears at each edge. Mapped here and nowhere else. */
export const ERRORS = {
  /** The request itself is wrong and will never succeed as it is. */
  invalid_argument: { status: 400, exitCode: 64, retryable: false },
  /** No key, or a key that is not known. */
  unauthenticated: { status: 401, exitCode: 77, retryable: false },
  /** The key is known, or the user inside the sandbox is, but may not do this. */
  permission_denied: { status: 403, exitCode: 77, retryable: false },
  /** The thing named does not exist, or is not the caller's to see. */
  not_found: { status: 404, exitCode: 66, retryable: false },
  /** Something else already has this id, name or path. */
  already_exists: { status: 409, exitCode: 73, retryable: false },
  /** Another change to the same resource won; read it again and decide again. */
  conflict: { status: 409, exitCode: 75, retryable: true },
  /** The thing is not in a state that allows this. */
  failed_precondition: { status: 412, exitCode: 65, retryable: false },
  /** A quota, a limit, or the machine is full. */
  resource_exhausted: { status: 429, exitCode: 69, retryable: true },
  /** This backend, runtime or build cannot do it, and its capabilities say so. */
  unsupported: { status: 501, exitCode: 70, retryable: false },
  /** What is needed does not answer at the moment. */
  unavailable: { status: 503, exitCode: 69, retryable: true },
  /** It took longer than was allowed. */
  deadline_exceeded: { status: 504, exitCode: 124, retryable: true },
  /** The caller gave up. */
  cancelled: { status: 499, exitCode: 130, retryable: false },
  /** A fault of ours. */
  internal: { status: 500, exitCode: 70, retryable: false },
} as const;

export type ErrorCode = keyof typeof ERRORS;

export const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[];

export interface CayErrorOptions {
  cause?: unknown;
  /** Small, machine readable, safe to show: never a secret. */
  details?: Record<string, unknown>;
  /** One line that tells the reader what to do. */
  hint?: string;
}

/** The shape of an error on the wire: `{ error: {...} }`. */
export interface WireError {
  code: ErrorCode;
  message: string;
  details?: Record<string, unknown>;
  hint?: string;
}

export class CayError extends Error {
  override readonly name = 'CayError';
  readonly code: ErrorCode;
  readonly details: Record<string, unknown>;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: CayErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ?? {};
    this.hint = options.hint;
  }

  get retryable(): boolean {
    return ERRORS[this.code].retryable;
  }

  toWire(): WireError {
    return {
      code: this.code,
      message: this.message,
      ...(Object.keys(this.details).length > 0 && { details: this.details }),
      ...(this.hint !== undefined && { hint: this.hint }),
    };
  }

  static fromWire(wire: WireError): CayError {
    return new CayError(wire.code, wire.message, {
      ...(wire.details && { details: wire.details }),
      ...(wire.hint !== undefined && { hint: wire.hint }),
    });
  }
}

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(ERRORS, value);
}

export function isCayError(error: unknown, code?: ErrorCode): error is CayError {
  return error instanceof CayError && (code === undefined || error.code === code);
}
