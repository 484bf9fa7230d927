import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

/** How soon what a full disk has kept from being recorded is tried again. */
export const DISK_FULL_RETRY_MS = 1000;

/**
 * Does it when there may be room again. It tells of its own failures. What is only waiting keeps no process
 * alive.
 */
export function retryOnDiskFull(work: () => unknown): void {
  setTimeout(() => inBackground((async () => work())(), ignoreFailure), DISK_FULL_RETRY_MS).unref();
}
