import { constants } from 'node:os';
import { CayError, isCayError, type ErrorCode } from '@cay/sdk/protocol';

const { errno } = constants;

/** An answer that is an error number. */
export class FuseError extends Error {
  readonly errno: number;
  constructor(number: number) {
    super(`errno ${number}`);
    this.errno = number;
  }
}

const NUMBERS: Partial<Record<ErrorCode, number>> = {
  not_found: errno.ENOENT,
  permission_denied: errno.EACCES,
  // The object is another than the one that was opened.
  conflict: errno.ESTALE,
  already_exists: errno.EEXIST,
  resource_exhausted: errno.ENOSPC,
  unsupported: errno.EOPNOTSUPP,
  invalid_argument: errno.EINVAL,
};

/** What a program gets to see of a failure. */
export function errnoOf(error: unknown): number {
  if (error instanceof FuseError) return error.errno;
  if (isCayError(error)) return NUMBERS[(error as CayError).code] ?? errno.EIO;
  const code = (error as NodeJS.ErrnoException | undefined | null)?.code;
  if (code === 'ENOSPC' || code === 'EDQUOT') return errno.ENOSPC;
  return errno.EIO;
}
