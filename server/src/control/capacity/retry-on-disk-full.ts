import { isCayError } from '@cay/sdk/protocol';
import { retry } from '../../lib/retry.ts';

export const DISK_FULL_RETRY_MS = 1000;

/**
 * Runs a change of the records. While the disk is full, reports that and tries again every second, in the
 * background. With `later` the first attempt too is a second away, for a change that has just failed.
 * Resolves after the first attempt, or at once with `later`, and never rejects.
 */
export function retryOnDiskFull(
  work: () => unknown,
  onError: (error: unknown) => void,
  { later = false }: { later?: boolean } = {},
): Promise<void> {
  return retry(work, {
    isTransient: (error) => isCayError(error, 'resource_exhausted'),
    onError,
    delayMs: DISK_FULL_RETRY_MS,
    ...(later && { firstDelayMs: DISK_FULL_RETRY_MS }),
  });
}
