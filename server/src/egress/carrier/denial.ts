import { CayError, type EgressReason, type ErrorCode } from '@cay/sdk/protocol';

/**
 * Why an attempt ends: for the record, for the error that the guest gets, and for the page that explains it.
 */
export class Denial extends Error {
  readonly reason: EgressReason;
  readonly rule: string | undefined;
  constructor(reason: EgressReason, message: string, rule?: string) {
    super(message);
    this.reason = reason;
    this.rule = rule;
  }

  /** What is no denial becomes one of this reason. */
  static from(error: unknown, reason: EgressReason, message: string): Denial {
    return error instanceof Denial ? error : new Denial(reason, message);
  }

  /** Whether the policy refused it, in contrast to a target that does not answer. */
  get denied(): boolean {
    return !FAILURES.has(this.reason);
  }

  toError(hint?: string): CayError {
    return new CayError(CODES[this.reason] ?? 'permission_denied', this.message, {
      details: { reason: this.reason, ...(this.rule !== undefined && { rule: this.rule }) },
      ...(hint !== undefined && { hint }),
    });
  }
}

const FAILURES: ReadonlySet<EgressReason> = new Set(['resolve', 'connect', 'tls', 'idle', 'closed']);
const CODES: Partial<Record<EgressReason, ErrorCode>> = {
  limit: 'resource_exhausted',
  resolve: 'unavailable',
  connect: 'unavailable',
  tls: 'unavailable',
  closed: 'unavailable',
  idle: 'deadline_exceeded',
  invalid_target: 'invalid_argument',
};
