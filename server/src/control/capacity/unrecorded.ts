import { CayError, isCayError } from '@cay/sdk/protocol';

/**
 * The error of a change that was made and could not be recorded. `resource_exhausted` would say that nothing
 * was done, so a full disk becomes `unavailable`; other errors stay as they are.
 */
export function unrecordedOnFullDisk(error: unknown, what: string): unknown {
  if (!isCayError(error, 'resource_exhausted')) return error;
  return new CayError('unavailable', `${what}, which cannot be recorded yet: the disk is full`, {
    cause: error,
  });
}
