import { CayError, type ErrorCode } from '@cay/sdk/client';
import { errnoOf, errnoText, systemReason } from '@cay/sdk/system-error';

const CODES: Record<string, ErrorCode> = {
  ENOENT: 'not_found',
  ENOTDIR: 'not_found',
  EACCES: 'permission_denied',
  EPERM: 'permission_denied',
  EROFS: 'permission_denied',
  EEXIST: 'already_exists',
  ENOSPC: 'resource_exhausted',
  EDQUOT: 'resource_exhausted',
};

/** A failure of this machine's files as a CayError. `action` is a verb: `read`, `write`, `create`. */
export function pathError(action: string, path: string, cause: unknown, hint?: string): CayError {
  if (cause instanceof CayError) return cause;
  const errno = errnoOf(cause);
  const why = errno === undefined ? systemReason(cause) : errnoText(errno);
  return new CayError(CODES[errno ?? ''] ?? 'failed_precondition', `Cannot ${action} "${path}": ${why}`, {
    cause,
    ...(hint !== undefined && { hint }),
    ...(errno !== undefined && { details: { errno } }),
  });
}
